"""When a call that failed is worth a word to the user, and which."""

from __future__ import annotations

from typing import Final

from dtj.api.names import Reason
from dtj.core.actions import Emit

MIN_FAILURES: Final = 3
"""How many passes in a row may fail by an error of the API server before it is reported: two seconds or so."""


def worth_reporting(failures: int, *, permanent: bool) -> bool:
    """Whether this many failures in a row are reported. ``permanent`` ones do not pass by themselves."""
    return permanent or failures >= MIN_FAILURES


def tensorboard_failed(message: str) -> Emit:
    """The event that reports an action that was a :class:`~dtj.core.actions.BestEffort` and failed."""
    return Emit(
        "Warning", Reason.TENSORBOARD_FAILED, f"{message}; the job goes on without TensorBoard, which is tried again"
    )
