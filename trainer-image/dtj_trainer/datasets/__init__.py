"""The data sets that ship, as arrays.

NumPy only: the same arrays feed every kind of model. Where each file comes from, and under which licence, stands in
the `.md` next to it.
"""

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_FOLDER = Path(__file__).parent
_HELD_OUT = 0.2
_SIDE, _BRIGHTEST = 8, 16
_NEUTRAL = 0.5
"""The mean rating goes from -4 to 4. What is nearer to 0 than this says neither, and is left out."""


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
    """Training and validation examples. They do not overlap.

    Attributes:
        classes: what the labels 0, 1, … mean; empty where they are numbers to be predicted.
    """

    name: str
    training: Split
    validation: Split
    classes: tuple[str, ...]


def _divided(
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


def _table(file: str) -> npt.NDArray[np.float64]:
    """The numbers of a gzipped CSV file of this folder without a header, [rows, columns]."""
    with gzip.open(_FOLDER / file, "rt", encoding="ascii") as lines:
        return np.loadtxt(lines, delimiter=",")


def _lines(file: str) -> list[str]:
    """The lines of a gzipped text file of this folder."""
    with gzip.open(_FOLDER / file, "rt", encoding="utf-8") as text:
        return text.read().splitlines()


def digits() -> Dataset:
    """1,797 handwritten digits of 8x8 pixels: the UCI data set of E. Alpaydin and C. Kaynak (digits.md).

    Images as float32 [examples, 8, 8, 1] in [0, 1]; labels 0 to 9.
    """
    rows = _table("digits.csv.gz")
    images = (rows[:, :-1].reshape(-1, _SIDE, _SIDE, 1) / _BRIGHTEST).astype(np.float32)
    return _divided("digits", images, rows[:, -1].astype(np.int64), classes=tuple("0123456789"), seed=1998)


def reviews() -> Dataset:
    """2,985 sentences of customers' reviews, favourable or not: C. J. Hutto and E. Gilbert (reviews.md).

    Sentences as bytes objects [examples], UTF-8; label 1 is favourable.
    """
    rows = (line.split("\t", 1) for line in _lines("reviews.tsv.gz"))
    rated = [(float(rating), text) for rating, text in rows if abs(float(rating)) >= _NEUTRAL]
    texts = np.array([text.encode() for _, text in rated], dtype=object)
    labels = np.array([rating > 0 for rating, _ in rated], dtype=np.int64)
    return _divided("reviews", texts, labels, classes=("unfavourable", "favourable"), seed=2014)


def diabetes() -> Dataset:
    """442 patients, and how far their diabetes had gone a year later: B. Efron et al. (diabetes.md).

    Ten measures as float32 [examples, 10] in their own units; labels float32, 25 to 346.
    """
    rows = _table("diabetes.csv.gz").astype(np.float32)
    return _divided("diabetes", rows[:, :-1], rows[:, -1], classes=(), seed=2004)


def breast_cancer() -> Dataset:
    """569 tumours, malignant or benign: the UCI data set (breast_cancer.md).

    Measures of their cells' nuclei as float32 [examples, 30] in their own units; label 1 is benign.
    """
    rows = _table("breast_cancer.csv.gz")
    inputs, labels = rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.int64)
    return _divided("breast-cancer", inputs, labels, classes=("malignant", "benign"), seed=1995)


LOAD: Mapping[str, Callable[[], Dataset]] = {
    "digits": digits,
    "reviews": reviews,
    "diabetes": diabetes,
    "breast-cancer": breast_cancer,
}
"""By the names of `--dataset`."""
