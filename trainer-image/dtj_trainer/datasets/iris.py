"""150 irises of three species by the length and width of sepals and petals: R. A. Fisher's data (iris.md)."""

import numpy as np

from dtj_trainer.datasets import Dataset, divided, table


def load() -> Dataset:
    """Sepal length and width, petal length and width as float32 [examples, 4], in cm; the label is the species."""
    rows = table("iris.csv.gz")
    inputs, labels = rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.int64)
    return divided("iris", inputs, labels, classes=("setosa", "versicolor", "virginica"), seed=1936)
