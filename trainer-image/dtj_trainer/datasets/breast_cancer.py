"""569 tumours, malignant or benign, by 30 measures of their cells' nuclei: the UCI data set (breast_cancer.md)."""

import numpy as np

from dtj_trainer.datasets import Dataset, divided, table


def load() -> Dataset:
    """Measures as float32 [examples, 30] in their own units; label 1 is benign."""
    rows = table("breast_cancer.csv.gz")
    inputs, labels = rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.int64)
    return divided("breast-cancer", inputs, labels, classes=("malignant", "benign"), seed=1995)
