"""178 wines of three growers by 13 chemical measures: the UCI data set (wine.md)."""

import numpy as np

from dtj_trainer.datasets import Dataset, divided, table


def load() -> Dataset:
    """Measures as float32 [examples, 13] in their own units; the label is the grower."""
    rows = table("wine.csv.gz")
    inputs, labels = rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.int64)
    return divided("wine", inputs, labels, classes=("grower 1", "grower 2", "grower 3"), seed=1991)
