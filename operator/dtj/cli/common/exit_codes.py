"""What the exit codes of ``dtj`` mean."""

from enum import IntEnum


class Exit(IntEnum):
    """0 to 4 are about what was asked for; 70 is a defect of ours; 128 and more say that a signal ended it."""

    OK = 0
    FAILED = 1
    """The job failed."""

    USAGE = 2
    """Bad input: one line has reported what is wrong, and nothing was run."""

    TIMEOUT = 3
    """The time that was given is over."""

    API = 4
    """The cluster cannot be reached, or it refused."""

    DEFECT = 70
    """A defect of ``dtj`` itself; a traceback says where. Not 1, which a script takes for a job that failed."""

    SIGNAL = 128
    """Plus the number of the signal: 130 after Ctrl-C."""
