"""Arguments that are shown in every report: options of the trainer whose values are numbers or its own words. Pure.

The trainer refuses any other value of them, so that none can be a secret.
"""

from __future__ import annotations

import re
from typing import Final

NUMBERS: Final = frozenset({
    "--batch-size", "--checkpoint-every-seconds", "--checkpoint-every-steps", "--checkpoint-keep",
    "--epochs", "--learning-rate", "--logical-cpus", "--micro-batches",
    "--per-replica-batch-size", "--progress-every", "--seed",
    "--stall-timeout", "--start-timeout", "--steps-per-call", "--validate-every",
})  # fmt: skip
"""Options of the trainer that take a number, of epochs too."""

WORDS: Final = frozenset({
    "--data-format", "--keras-override", "--on-nan", "--optimizer", "--schedule", "--shard",
    "--strategy", "--task",
})  # fmt: skip
"""Options of the trainer that take one of a few words."""

_NUMBER: Final = re.compile(r"[+-]?\d{0,12}\.?\d{1,12}(e[+-]?\d{1,3}|epochs?)?", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z]{1,24}(-[A-Za-z]{1,24}){0,3}")


def is_public(option: str, value: str) -> bool:
    """Whether an option with this value is shown in every report."""
    if option in NUMBERS:
        return _NUMBER.fullmatch(value) is not None
    return option in WORDS and _WORD.fullmatch(value) is not None
