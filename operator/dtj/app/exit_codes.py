"""How the operator's process ends."""

EXIT_DEFECT = 1
EXIT_USAGE = 2
EXIT_LEASE_LOST = 3
EXIT_API = 4
