"""Batches of generators for several replicas. Imports TensorFlow.

TensorFlow takes an array that a generator yields without a copy, and a replica of Mirrored may compute in its memory:
what the user has in the array is overwritten. Keras' fit of a generator or a PyDataset makes such a dataset.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def from_generator(original: Callable[..., Any], generator: Any, *args: Any, **kwargs: Any) -> Any:
    """The dataset of a generator, of copies of its arrays."""
    if not callable(generator):
        return original(generator, *args, **kwargs)

    def copies(*given: Any) -> Iterator[Any]:
        for element in generator(*given):
            yield _copied(element)

    return original(copies, *args, **kwargs)


def _copied(element: Any) -> Any:
    if isinstance(element, np.ndarray):
        return element.copy()
    if isinstance(element, tuple):
        values = [_copied(value) for value in element]
        return type(element)(*values) if hasattr(element, "_fields") else tuple(values)
    if type(element) is dict:
        return {name: _copied(value) for name, value in element.items()}
    return element
