"""When a call that failed is worth a word to the user, and which."""

from __future__ import annotations

from typing import Final

from dtj.api.kueue_labels import PRIORITY_CLASS
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


OTHER_CLASS: Final = f"create the class, or change the label {PRIORITY_CLASS} of the job"
"""What to do about a WorkloadPriorityClass that cannot be read."""


def priority_class_object(name: str) -> str:
    """How messages name a WorkloadPriorityClass."""
    return f"WorkloadPriorityClass {name}"


def priority_not_followed(name: str, message: str) -> Emit:
    """The event of a job that runs, and whose label now names a class that cannot be read."""
    words = f"{priority_class_object(name)}: {message}: the job keeps its priority: {OTHER_CLASS}"
    return Emit("Warning", Reason.API_CALL_FAILED, words)
