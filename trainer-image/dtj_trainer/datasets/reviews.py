"""2,985 sentences of customers' reviews, rated as favourable or not: C. J. Hutto and E. Gilbert (reviews.md)."""

import numpy as np

from dtj_trainer.datasets import Dataset, divided, lines

_NEUTRAL = 0.5
"""The mean rating goes from -4 to 4. What is nearer to 0 than this says neither, and is left out."""


def load() -> Dataset:
    """Sentences as bytes objects [examples], UTF-8; label 1 is favourable."""
    rows = (line.split("\t", 1) for line in lines("reviews.tsv.gz"))
    rated = [(float(rating), text) for rating, text in rows if abs(float(rating)) >= _NEUTRAL]
    texts = np.array([text.encode() for _, text in rated], dtype=object)
    labels = np.array([rating > 0 for rating, _ in rated], dtype=np.int64)
    return divided("reviews", texts, labels, classes=("unfavourable", "favourable"), seed=2014)
