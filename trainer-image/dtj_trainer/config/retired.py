"""Options that are gone, and what does their work. Standard library only."""

from collections.abc import Mapping, Sequence

from dtj_trainer.errors import UsageError

_FIT = "call Keras' fit in a script, and give --script; the trainer has one loop, and --actions for it"
RETIRED: Mapping[str, str] = {
    "--callbacks": _FIT,
    "--loop": _FIT,
}
"""Option -> what remains."""


def refuse(arguments: Sequence[str]) -> None:
    """Refuses an option that is gone.

    Raises:
        UsageError: there is one.
    """
    for argument in arguments:
        if remains := RETIRED.get(argument.partition("=")[0]):
            raise UsageError(f"{argument}: this option is gone; {remains}")
