"""Data sets as arrays. A module of this package offers `load() -> Dataset`; `dtj_trainer.registry` names it.

NumPy only: the same arrays feed every kind of model. Where each file comes from, and under which licence, stands in
the `.md` next to it.
"""

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_FOLDER = Path(__file__).parent
_HELD_OUT = 0.2


@dataclass(frozen=True, kw_only=True)
class Split:
    """Examples and their labels.

    Attributes:
        inputs: [examples, ...]: float32, or bytes objects for text.
        labels: [examples]: int64 for classes, float32 for numbers to be predicted.
    """

    inputs: npt.NDArray[Any]
    labels: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What to learn from, and what to be judged by: no example is in both.

    Attributes:
        classes: what the labels 0, 1, … mean; empty where they are numbers to be predicted.
    """

    name: str
    training: Split
    validation: Split
    classes: tuple[str, ...]


def divided(
    name: str, inputs: npt.NDArray[Any], labels: npt.NDArray[Any], *, classes: tuple[str, ...], seed: int
) -> Dataset:
    """Holds one fifth out, drawn from the seed and always the same: of each class, where there are classes."""
    # RandomState's stream is frozen for good; that of default_rng may change with NumPy, and the split with it.
    random = np.random.RandomState(seed)
    groups = [np.flatnonzero(labels == label) for label in range(len(classes))] or [np.arange(len(labels))]
    parts: tuple[list[npt.NDArray[np.int64]], ...] = ([], [])
    for group in groups:
        members = random.permutation(group)
        count = round(_HELD_OUT * len(members))
        parts[0].append(members[count:])
        parts[1].append(members[:count])
    training, validation = (np.sort(np.concatenate(part)) for part in parts)
    return Dataset(
        name=name,
        training=Split(inputs=inputs[training], labels=labels[training]),
        validation=Split(inputs=inputs[validation], labels=labels[validation]),
        classes=classes,
    )


def table(file: str) -> npt.NDArray[np.float64]:
    """The numbers of a gzipped CSV file of this folder without a header, [rows, columns]."""
    with gzip.open(_FOLDER / file, "rt", encoding="ascii") as lines:
        return np.loadtxt(lines, delimiter=",")


def lines(file: str) -> list[str]:
    """The lines of a gzipped text file of this folder."""
    with gzip.open(_FOLDER / file, "rt", encoding="utf-8") as text:
        return text.read().splitlines()
