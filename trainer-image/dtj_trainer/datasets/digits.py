"""1,797 handwritten digits, 8x8 pixels each: the UCI data set of E. Alpaydin and C. Kaynak (digits.md)."""

import numpy as np

from dtj_trainer.datasets import Dataset, divided, table

_SIDE = 8
_BRIGHTEST = 16


def load() -> Dataset:
    """Images as float32 [examples, 8, 8, 1] in [0, 1]; labels 0 to 9; one fifth of each class is held out."""
    rows = table("digits.csv.gz")
    images = (rows[:, :-1].reshape(-1, _SIDE, _SIDE, 1) / _BRIGHTEST).astype(np.float32)
    return divided("digits", images, rows[:, -1].astype(np.int64), classes=tuple("0123456789"), seed=1998)
