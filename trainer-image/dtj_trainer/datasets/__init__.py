"""Data sets as arrays. A module of this package offers `load() -> Dataset`; `dtj_trainer.registry` names it.

NumPy only: the same arrays feed every kind of model.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class Split:
    """Examples and their labels.

    Attributes:
        inputs: float32, [examples, ...].
        labels: int64, [examples].
    """

    inputs: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What to learn from, and what to be judged by: no example is in both."""

    name: str
    training: Split
    held_out: Split
    classes: tuple[str, ...]


def split(
    inputs: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], *, held_out: float, seed: int
) -> tuple[Split, Split]:
    """Divides into training and held-out examples, with the same share of each class in both; always the same.

    Args:
        held_out: share of each class that is held out.
    """
    # RandomState's stream is frozen for good; that of default_rng may change with NumPy, and the split with it.
    random = np.random.RandomState(seed)
    parts: tuple[list[npt.NDArray[np.int64]], ...] = ([], [])
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        count = round(held_out * len(members))
        parts[0].append(members[count:])
        parts[1].append(members[:count])
    training, judged = (np.sort(np.concatenate(part)) for part in parts)
    return (
        Split(inputs=inputs[training], labels=labels[training]),
        Split(inputs=inputs[judged], labels=labels[judged]),
    )
