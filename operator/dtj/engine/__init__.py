"""The machine: takes keys from a queue, has them planned, carries the plans out. Knows no policy."""
