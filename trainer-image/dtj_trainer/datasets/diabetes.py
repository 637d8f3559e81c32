"""442 patients by ten measures, and how far their diabetes had gone a year later: B. Efron et al. (diabetes.md)."""

import numpy as np

from dtj_trainer.datasets import Dataset, divided, table


def load() -> Dataset:
    """Measures as float32 [examples, 10] in their own units; labels float32, 25 to 346."""
    rows = table("diabetes.csv.gz").astype(np.float32)
    return divided("diabetes", rows[:, :-1], rows[:, -1], classes=(), seed=2004)
