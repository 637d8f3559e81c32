"""What the replicas of Keras' own loops draw in a step, without a seed too. Imports TensorFlow and Keras."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import keras

from dtj_trainer.compat import keras3
from dtj_trainer.training.replica_draws import ReplicaDraws

_unseeded: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""By strategy, what draws in its steps without a seed."""


def draws(strategy: Any) -> Callable[[], AbstractContextManager[None]]:
    """What is to be entered by each replica around a step: it draws its own numbers. All workers have to call it.

    Keras has one generator of what is drawn without a seed for each thread, and each replica is one. It would make its
    own within the step, where the replicas cannot make variables.
    """
    if strategy not in _unseeded:
        # As on one device, nothing that a script draws later depends on it.
        before = random.getstate()
        with strategy.scope():
            _unseeded[strategy] = keras.random.SeedGenerator(name="unseeded")
        random.setstate(before)
    generator, of_step = _unseeded[strategy], ReplicaDraws()

    @contextmanager
    def entered() -> Iterator[None]:
        with keras3.drawing_unseeded_by(generator), of_step.differing():
            yield

    return entered
