"""1,797 handwritten digits, 8x8 pixels each: the UCI data set of E. Alpaydin and C. Kaynak (digits.md)."""

import gzip
from pathlib import Path

import numpy as np

from dtj_trainer.datasets import Dataset, split

_FILE = Path(__file__).with_name("digits.csv.gz")
_SIDE = 8
_BRIGHTEST = 16
_HELD_OUT = 0.2
_SPLIT_SEED = 1998


def load() -> Dataset:
    """Images as float32 [examples, 8, 8, 1] in [0, 1]; labels 0 to 9; one fifth of each class is held out."""
    with gzip.open(_FILE, "rt", encoding="ascii") as lines:
        rows = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    images = (rows[:, :-1].reshape(-1, _SIDE, _SIDE, 1) / _BRIGHTEST).astype(np.float32)
    training, held_out = split(images, rows[:, -1], held_out=_HELD_OUT, seed=_SPLIT_SEED)
    return Dataset(name="digits", training=training, held_out=held_out, classes=tuple("0123456789"))
