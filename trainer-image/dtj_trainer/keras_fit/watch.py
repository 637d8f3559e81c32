"""Ends the `fit` of a script in which a worker hangs, and names the worker. Imports TensorFlow."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution import collective_timing
from dtj_trainer.distribution.stall_watch import LoopWatch, State, sums_begun


class FitWatch:
    """Watches the steps of Keras' `fit`, `evaluate` and `predict` by several workers; nothing between these steps.

    What a callback does may take any time.
    """

    def __init__(self, config: Config) -> None:
        self._watch = LoopWatch(config, self._state, kind="-fit", first_seconds=config.stall_timeout)
        self._strategy: Any = None
        self._waiting: collective_timing.Waiting | None = None

    def follow(self, strategy: Any) -> None:
        """Watches what a strategy reduces from now on; to be called before its steps are traced."""
        if strategy is self._strategy:
            return
        self._strategy = strategy

        def make() -> None:
            self._waiting = collective_timing.of(strategy, counts=True)

        # A strategy's scope, which makes variables of all replicas, is one of its thread.
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()

    @contextmanager
    def step(self) -> Iterator[None]:
        """While a step, or several in one call, are taken."""
        if self._waiting is None:
            yield
            return
        self._watch.begin()
        try:
            yield
            self._watch.done()
        finally:
            self._watch.pause()

    def _state(self) -> State:
        return sums_begun(self._waiting, "a step of fit, evaluate or predict")
