"""What `--metrics` may name: metrics of Keras that have a meaning for the tasks that ship. Standard library only."""

from difflib import get_close_matches

OF_CLASSES = (
    "AUC", "F1Score", "FalseNegatives", "FalsePositives", "Precision", "Recall", "TrueNegatives", "TruePositives",
)  # fmt: skip
OF_NUMBERS = (
    "LogCoshError", "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError", "R2Score",
    "RootMeanSquaredError",
)  # fmt: skip
"""The mean absolute error is always shown."""


def parse(text: str) -> tuple[str, ...]:
    """Keras' names, of names with commas between them, such as `AUC,precision`.

    Raises:
        ValueError: there is no such metric, or one is given twice.
    """
    known = {_plain(name): name for name in OF_CLASSES + OF_NUMBERS}
    found: list[str] = []
    for name in text.split(","):
        if _plain(name) not in known:
            near = [known[one] for one in get_close_matches(_plain(name), known, cutoff=0.5)]
            raise ValueError(
                f"no metric {name.strip()!r}; " + (f"did you mean {' or '.join(near)}?" if near else _all())
            )
        found.append(known[_plain(name)])
    if twice := [name for name in found if found.count(name) > 1]:
        raise ValueError(f"{twice[0]} is given twice")
    return tuple(found)


def _plain(name: str) -> str:
    return name.strip().replace("_", "").lower()


def _all() -> str:
    return f"for classes there are {', '.join(OF_CLASSES)}, for numbers {', '.join(OF_NUMBERS)}"
