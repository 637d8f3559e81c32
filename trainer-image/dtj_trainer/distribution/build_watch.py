"""Ends a task whose data or model are never ready, and names the worker that is late. Imports TensorFlow.

Under MultiWorkerMirrored, the workers make each variable together, so that all wait for one whose function blocks. Each
counts the variables that it began to make: the one with fewer is late.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from dtj_trainer.config.parsing import DEFAULT_STALL_SECONDS, Config
from dtj_trainer.distribution.stall_watch import TALK_SECONDS, Stalled, State, TaskWatch, end_stalled
from dtj_trainer.process import user_function
from dtj_trainer.process.ending import end_with
from dtj_trainer.process.watchdog import Watchdog


def limit_seconds(config: Config) -> float:
    """How long data may take to be ready. Of what a default says for steps, nothing follows for data that are read."""
    stall = config.stall_timeout if config.stall_timeout_given else max(config.stall_timeout, DEFAULT_STALL_SECONDS)
    return max(stall, config.start_timeout, DEFAULT_STALL_SECONDS if config.data.service else 0)


def data_watch(config: Config) -> Watchdog:
    """Watches what this task does alone: it reads its data, and tries the user's functions."""
    limit = limit_seconds(config)

    def end() -> None:
        doing = user_function.current()
        what = "the model is" if doing and " --model=" in doing else "the data are"
        end_with(Stalled(f"{what} not ready after {limit:g} s (--stall-timeout){f': {doing}' if doing else ''}"))

    return Watchdog(limit, Stalled(_late("the data are", limit)), end=end)


class BuildWatch(TaskWatch):
    """Watches how a model is built, restored and tried; a context manager around that."""

    def __init__(self, config: Config) -> None:
        limit = 2 * limit_seconds(config)
        super().__init__(config, _late("the model is", limit), limit)
        self._begun = 0
        self._waits = False

    @contextmanager
    def building(self) -> Iterator[None]:
        """While variables are made; enter it before the strategy's scope."""
        with tf.variable_creator_scope(self._create):
            yield

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this task waits for the others."""
        self._waits = True
        yield
        self._waits = False

    def _create(self, next_creator: Any, **arguments: Any) -> Any:
        self._begun += 1
        with self.waiting():
            return next_creator(**arguments)

    def end_late(self) -> None:
        """Ends the process, and names the task that all wait for."""
        self.ends_within(TALK_SECONDS)
        doing = "waits for the others" if self._waits else user_function.current() or "is at work on it"
        state = State(count=self._begun, in_call=self._waits, doing=doing)
        if self.config.strategy != "MultiWorkerMirrored" and not self._waits:
            end_with(Stalled(f"{self.what}: {doing}"))
        end_stalled(self.config, self.what, state, kind="-build")


def _late(what: str, seconds: float) -> str:
    return f"{what} not ready after {seconds:g} s (--stall-timeout)"
