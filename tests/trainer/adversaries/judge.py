"""What comes of a sample: whether the trainer gave the numbers of plain Keras, or said in one line that it cannot."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.adversaries.sample import Sample
from trainer.adversaries.ways import Ended, by_trainer, plainly

EQUAL, REFUSED, CHAOTIC, INVALID = "equal", "refused", "chaotic", "invalid"
WRONG, CRASH, HANG = "wrong", "crash", "hang"
FAULTS = (WRONG, CRASH, HANG)
TOLERANCE = 1e-5
"""Of a number, or of its part where it is larger than 1."""
NUDGED = 3.0
"""Times what a start that differs by 1e-6 moves plain Keras: a difference up to there says nothing."""
CHANCE = 10.0
"""The same where another seed moves it, too."""


@dataclass(frozen=True)
class Verdict:
    """What came of a sample, and the words or the figures that show it."""

    kind: str
    why: str = ""

    @property
    def fault(self) -> bool:
        """Whether this must not be."""
        return self.kind in FAULTS

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}" if self.why else self.kind


def judge(sample: Sample) -> Verdict:
    """Runs it."""
    folder = Path(tempfile.mkdtemp(prefix="dtj-sample-"))
    try:
        return _judge(sample, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _judge(sample: Sample, folder: Path) -> Verdict:
    plain = plainly(sample, folder / "plain")
    if plain.code != 0:
        return Verdict(INVALID, plain.words)
    expected = plain.numbers[0]
    found = by_trainer(sample, folder / "trainer")
    if found.code is None:
        return Verdict(HANG, found.words)
    if found.code:
        return _end(found, expected)
    difference, where = _largest_difference(expected, found)
    if difference <= TOLERANCE:
        return Verdict(EQUAL, f"{difference:.1g}")
    # What rounding alone may do to it.
    nudged, _ = _largest_difference(expected, plainly(sample, folder / "nudged", nudged=True))
    why = f"{difference:.2g} at {where}, {nudged:.1g} by a start that differs by 1e-6"
    limit = CHANCE if "tf.random" in str(sample) else NUDGED
    return Verdict(CHAOTIC if difference <= limit * nudged else WRONG, why)


def _end(found: Ended, expected: Mapping[str, Any]) -> Verdict:
    if found.code == 2 and found.words and "\n" not in found.words and "Traceback" not in found.words:
        return Verdict(REFUSED, found.words)
    if found.code == 1 and "not finite" in found.words and not _finite(expected):
        return Verdict(EQUAL, found.words)
    return Verdict(CRASH, f"exit code {found.code}: {found.words}")


def _finite(numbers: Mapping[str, Any]) -> bool:
    return all(np.isfinite(value).all() for value in numbers.values())


def _largest_difference(expected: Mapping[str, Any], found: Ended) -> tuple[float, str]:
    """Of any two numbers, on any worker, and its place."""
    largest = (float("inf"), "no numbers") if not found.numbers else (0.0, "")
    for numbers in found.numbers:
        for name in expected.keys() & numbers.keys():
            one, other = (np.asarray(each[name], "float64") for each in (expected, numbers))
            if one.shape != other.shape:
                return float("inf"), f"{name}: {one.shape} and {other.shape}"
            off = np.abs(one - other) / np.maximum(1, np.abs(one))
            off = np.where(np.isnan(one) & np.isnan(other) | (one == other), 0, off)
            difference = float(np.nan_to_num(off, nan=np.inf).max(initial=0))
            largest = max(largest, (difference, name))
        if missing := [name for name in expected if name.startswith("arr_") and name not in numbers]:
            return float("inf"), f"{missing[0]} is missing"
    return largest
