"""The exit codes that the operator classifies. Nothing else may end the trainer with another code."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How this process ended, as the operator's failure semantics read it."""

    DONE = 0
    FAILED = 1
    """An error in the training itself; a traceback was printed."""
    USAGE = 2
    """Bad input: one line has reported which argument or variable, its value and the remedy."""
    PREEMPTED = 42
    """Asked to stop; every task saved the same step first. The code of TensorFlow's own preemption handling."""
    PEER_LOST = 75
    """Another task went away or never came (EX_TEMPFAIL): a follow-up, not a cause."""
    TERMINATED = 143
    """Asked to stop with nothing to save (128 + SIGTERM)."""
