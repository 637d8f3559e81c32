"""Ends a task in which nothing moves for too long, and names the task that all wait for. Imports TensorFlow.

Workers in step wait for the slowest inside TensorFlow. Each counts the batches that its data gave: the one with fewer
is late, and it is the cause. While a model is built, they make each variable together, and count the variables that
they began to make. They tell each other through the coordination service.

What a step of a user's own loop is, only the user knows: it may be an epoch of an hour. So without `--stall-timeout` a
step may also take ten times as long as the longest one before, and the first one as long as it takes.
"""

import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any, Self

import tensorflow as tf

from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.cluster import EVALUATOR, PS, WORKER, Address, Task
from dtj_trainer.config.parsing import DEFAULT_STALL_SECONDS, Config
from dtj_trainer.distribution import collective_timing
from dtj_trainer.distribution.collective_timing import Waiting
from dtj_trainer.errors import PeerLost, TrainerError
from dtj_trainer.process import user_function
from dtj_trainer.process.ending import end_with
from dtj_trainer.process.watchdog import Watchdog, fed_by_moves

ANSWER_SECONDS = 5.0
"""After so long, all tasks have seen that nothing moves."""
SILENT = "does not answer"
TALK_SECONDS = 60.0
"""For which a watch that has ended leaves the tasks to tell each other how far they are."""
_LONGER_AT_MOST = 10.0
_NO_STEP = "no step was finished for"


class Stalled(TrainerError):
    """This task is the one that all wait for."""


@dataclass(frozen=True, kw_only=True, order=True)
class State:
    """How far a task is: of several tasks, the one with the least is late."""

    count: int
    """Batches that its data gave, or sums that it brought its part to."""
    waits: bool
    """Whether it is in what all do together, such as a step or a sum; also where it may be, and nothing shows it."""
    doing: str = field(compare=False)
    """How it is shown."""


@dataclass(frozen=True)
class Limit:
    """How long nothing may move."""

    what: str
    """What did not happen, before the number of seconds."""
    seconds: float
    _: KW_ONLY
    first: float = 0.0
    """What a step may take, if that is more, that traces and compiles, on all workers."""
    least: float | None = None
    """If set, a step may take so long, and ten times as long as the longest one before."""


class Watch(Watchdog):
    """Ends this task when nothing moves for too long, and names the task that all wait for.

    It watches from `begin` to `rest`, or as a context manager.
    """

    def __init__(
        self,
        config: Config,
        limit: Limit,
        state: Callable[[], State],
        *,
        kind: str = "",
        find_late: Callable[[], Mapping[Any, str]] = dict,
    ) -> None:
        """Args:
        state: how far this task is; asked when the limit is over.
        kind: see `late_tasks`.
        find_late: those that all others wait for, and what each does, where this task alone can tell.
        """
        self._config, self._limit, self._state = config, limit, state
        self._kind, self._find_late = kind, find_late
        self._on, self._longest, self._since = False, 0.0, 0.0
        self.waits = False
        """Whether this task is in what all do together."""
        error = Stalled(limit.what) if _is_alone(config) else PeerLost(limit.what)
        super().__init__(limit.seconds, error, end=self._end)

    def begin(self) -> None:
        """A step begins, or something else that may trace."""
        self._on, self._since = True, time.monotonic()
        self.feed(self.seconds if self._longest else max(self.seconds, self._limit.first))

    def done(self) -> None:
        """A step is done, and the next one begins. Those that follow trace no more."""
        now = time.monotonic()
        self._longest, self._since = max(self._longest, now - self._since), now
        if self._limit.least is not None:
            self.seconds = max(self._limit.least, round(_LONGER_AT_MOST * self._longest))
        self.feed()

    def feed(self, seconds: float | None = None) -> None:
        """Something moved, or may take this many seconds to move; nothing before `begin`, and after `rest`."""
        if self._on:
            super().feed(seconds)

    def rest(self) -> None:
        """Nothing has to move until `begin`."""
        self._on = False
        super().rest()

    @contextmanager
    def saving(self, seconds: float) -> Iterator[None]:
        """While a checkpoint is written, which may take so long."""
        self.feed(self.seconds + seconds)
        yield
        self.feed()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this task is in what all do together."""
        self.waits = True
        yield
        self.waits = False

    def __enter__(self) -> Self:
        self.begin()
        return self

    def _end(self) -> None:
        self.ends_within(TALK_SECONDS)
        # Others may have measured another longest step.
        later = 0.0 if self._limit.least is None else self.seconds / _LONGER_AT_MOST
        late = self._find_late() or late_tasks(
            self._config, self._state(), kind=self._kind, answer_seconds=max(ANSWER_SECONDS, later)
        )
        what = f"{self._limit.what} {self.seconds:g} s (--stall-timeout)"
        if doing := late.get(self._config.cluster.task):
            end_with(Stalled(f"{what}: {doing}"))
        names = ", ".join(f"{task} {doing}" for task, doing in late.items())
        end_with(PeerLost(f"{what}: {names or 'a task of this job hangs'}"))


def late_tasks(config: Config, state: State, *, kind: str, answer_seconds: float) -> Mapping[Task, str]:
    """The tasks that all others wait for, and what each does; none where that cannot be told.

    Args:
        state: how far this task is.
        kind: of the watch, by which tasks compare only what can be compared.
        answer_seconds: how much later another task may see that nothing moves.
    """
    here, tasks = config.cluster.task, config.cluster.trainers
    if _is_alone(config):
        return {here: state.doing}
    if config.strategy != "MultiWorkerMirrored":
        return find_silent(config.cluster.peers(WORKER, PS)) or ({} if state.waits else {here: state.doing})
    found: dict[Task, State | None] = dict.fromkeys(tasks)
    with suppress(tf.errors.OpError):
        compat.set_key_value(f"dtj-stall{kind}/{here}", json.dumps(asdict(state)))
    for task in tasks:
        with suppress(tf.errors.OpError):
            told = compat.get_key_value(f"dtj-stall{kind}/{task}", seconds=answer_seconds)
            found[task] = State(**json.loads(told))
    with suppress(tf.errors.OpError):
        # The leader keeps these words: it stays until all have read them.
        compat.wait_at_barrier(f"dtj-stall{kind}", seconds=answer_seconds)
    return latest(found)


def latest(found: Mapping[Task, State | None]) -> Mapping[Task, str]:
    """The tasks that the others wait for: those that do not answer, else those with the fewest batches, else those that
    have not begun the step; none where all are alike.

    Args:
        found: how far each task is; None where it did not answer.
    """
    if silent := [task for task, state in found.items() if state is None]:
        return dict.fromkeys(silent, SILENT)
    least = min(state for state in found.values() if state)
    late = {task: state.doing for task, state in found.items() if state == least}
    return {} if len(late) == len(found) else late


def find_silent(tasks: Mapping[Task, Address], *, seconds: float = ANSWER_SECONDS) -> Mapping[Task, str]:
    """Those whose TensorFlow servers do not greet who connects within this time, as gRPC does.

    A computation would wait behind a step: TensorFlow has a host of a TPU do one thing after the other.
    """

    def greets(address: Address) -> bool:
        with suppress(OSError), socket.create_connection((address.host, address.port), seconds) as caller:
            return bool(caller.recv(1))
        return False

    with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as pool:
        answers = pool.map(greets, tasks.values())
        return {task: SILENT for task, greeted in zip(tasks, answers, strict=True) if not greeted}


def _is_alone(config: Config) -> bool:
    return config.cluster.task.role == EVALUATOR or len(config.cluster.trainers) < 2


def step_watch(
    config: Config,
    *,
    batches: Callable[[], int] = lambda: 0,
    waits: Callable[[], bool] = lambda: False,
    find_late: Callable[[], Mapping[Task, str]] = dict,
) -> Watch:
    """Watches the steps of the trainer's own loop, which says by `Watch.waiting` when it is in them.

    Args:
        batches: how many batches the data gave so far, if it is a worker of a collective that watches.
        waits: whether this task waits for the others outside of its steps.
        find_late: see `Watch`.
    """

    def in_step() -> bool:
        return watch.waits or waits()

    def state() -> State:
        count = batches()
        doing = "waits in a step" if in_step() else "is outside of its steps, as in a callback or a validation"
        if config.strategy == "MultiWorkerMirrored" and not _is_alone(config):
            doing += f", after {count} batches of its data"
        # On a TPU a validation waits for the hosts as well.
        return State(count=count, waits=in_step() or config.strategy == "TPU", doing=doing)

    def late() -> Mapping[Any, str]:
        # A service without a data worker is waited for in silence, and may never give its first batch.
        return {"the tf.data service": "gives no data"} if config.data.service and in_step() else find_late()

    limit = Limit(_NO_STEP, config.stall_timeout, first=0.0 if config.data.service else config.start_timeout)
    watch = Watch(config, limit, state, find_late=late)
    return watch


@contextmanager
def building(config: Config) -> Iterator[Watch]:
    """Watches how a model is built, restored and tried; to be entered before the strategy's scope."""
    begun = 0

    def state() -> State:
        doing = "waits for the others" if watch.waits else user_function.current() or "is at work on it"
        return State(count=begun, waits=watch.waits, doing=doing)

    def create(next_creator: Any, **arguments: Any) -> Any:
        nonlocal begun
        begun += 1
        with watch.waiting():
            return next_creator(**arguments)

    limit = Limit("the model is not ready after", 2 * limit_seconds(config))
    watch = Watch(config, limit, state, kind="-build")
    with watch, tf.variable_creator_scope(create):
        yield watch


def loop_watch(config: Config, state: Callable[[], State], *, kind: str, first: float = math.inf) -> Watch:
    """Watches a loop of the user's.

    Args:
        first: seconds that the first step may take without `--stall-timeout`.
    """
    limit = Limit(_NO_STEP, config.stall_timeout, first=config.start_timeout)
    if not config.stall_timeout_given:
        limit = Limit(_NO_STEP, first, least=config.stall_timeout)
    watch = Watch(config, limit, state, kind=kind)
    watch.ends_stuck_python = False
    return watch


class FitWatch:
    """Watches the steps of Keras' `fit`, `evaluate` and `predict` by several workers; nothing between these steps.

    What a callback does may take any time.
    """

    def __init__(self, config: Config) -> None:
        self._watch = loop_watch(config, self._state, kind="-fit", first=config.stall_timeout)
        self._strategy: Any = None
        self._waiting: Waiting | None = None

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
        with self._watch if self._waiting else nullcontext() as watch:
            yield
            if watch:
                watch.done()

    def _state(self) -> State:
        return sums_begun(self._waiting, "a step of fit, evaluate or predict")


def sums_begun(waits: Waiting | None, where: str) -> State:
    """How far a task is that is known by its sums over the replicas alone.

    Args:
        waits: counts them; None where the replicas are all in this process, or nothing shows it.
        where: how the step is shown.
    """
    begun, ended = waits.begun_and_ended if waits else (0, 0)
    what = "waits for the others" if begun > ended else "waits for its data, or is in the script's own code,"
    return State(count=begun, waits=begun > ended or waits is None, doing=f"{what} in {where}")


def limit_seconds(config: Config) -> float:
    """How long data may take to be ready. Of what a default says for steps, nothing follows for data that are read."""
    stall = config.stall_timeout if config.stall_timeout_given else max(config.stall_timeout, DEFAULT_STALL_SECONDS)
    return max(stall, config.start_timeout, DEFAULT_STALL_SECONDS if config.data.service else 0)


@contextmanager
def data_watch(config: Config) -> Iterator[None]:
    """Watches what this task does alone: it reads its data, as long as that takes, and tries the user's functions."""
    limit = limit_seconds(config)

    def end() -> None:
        doing = user_function.current()
        of_model = doing and " --model=" in doing
        # Only reading tells of its progress: a model that is built has the whole time, and no more.
        what, waited = (
            ("the model is", f"{limit:g} s") if of_model else ("the data are", f"{limit:g} s without progress")
        )
        end_with(Stalled(f"{what} not ready after {waited} (--stall-timeout){f': {doing}' if doing else ''}"))

    with Watchdog(limit, Stalled("the data are not ready"), end=end) as watch, fed_by_moves(watch):
        yield
