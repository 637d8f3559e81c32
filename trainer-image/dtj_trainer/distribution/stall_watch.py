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
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from queue import Empty, Queue
from typing import Any, NoReturn

import tensorflow as tf

from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.cluster import WORKER, Address, Task
from dtj_trainer.config.parsing import DEFAULT_STALL_SECONDS, Config
from dtj_trainer.distribution import collective_timing
from dtj_trainer.distribution.collective_timing import Waiting
from dtj_trainer.errors import PeerLost, TrainerError
from dtj_trainer.process import user_function
from dtj_trainer.process.ending import end_with
from dtj_trainer.process.watchdog import Watchdog

ANSWER_SECONDS = 5.0
"""After so long, all tasks have seen that nothing moves."""
SILENT = "does not answer"
TALK_SECONDS = 60.0
"""For which a watch that has ended leaves the tasks to tell each other how far they are."""
_LONGER_AT_MOST = 10.0


class Stalled(TrainerError):
    """This task is the one that all wait for."""


@dataclass(frozen=True, kw_only=True)
class State:
    """How far a task is."""

    count: int
    """Batches that its data gave, or sums that it brought its part to: of several tasks, the one with fewer is late."""
    in_call: bool
    """Whether it is in a step, or in such a sum."""
    doing: str
    """How it is shown."""


class TaskWatch(Watchdog):
    """Watches what all tasks do together: if this one ends, it names the task that all wait for."""

    def __init__(self, config: Config, what: str, seconds: float) -> None:
        """Args:
        what: what did not happen.
        """
        self.config = config
        self.what = what
        self.alone = len(config.cluster.addresses) < 2
        error = Stalled(what) if self.alone else PeerLost(f"{what}: a task of this job hangs")
        super().__init__(seconds, error, end=self.end_late)

    def end_late(self) -> None:
        """Ends the process, in which nothing moves."""
        raise NotImplementedError


class StallWatch(TaskWatch):
    """Watches the steps of this task; a context manager around the training."""

    def __init__(
        self,
        config: Config,
        *,
        batches: Callable[[], int] = lambda: 0,
        waits: Callable[[], bool] = lambda: False,
        find_late: Callable[[], Mapping[Task, str]] | None = None,
    ) -> None:
        """Args:
        batches: how many batches the data gave so far, if it is a worker of a collective that watches.
        waits: whether this task waits for the others outside of its steps.
        find_late: the tasks that all others wait for, and what each does, where this task alone can tell.
        """
        super().__init__(
            config, f"no step was finished for {config.stall_timeout:g} s (--stall-timeout)", config.stall_timeout
        )
        self._batches = batches
        self._waits = waits
        self._find_late = find_late
        self.in_call = False
        """Whether this task is in a step, and not in a callback or a checkpoint."""

    def begin(self) -> None:
        """The first step traces and compiles, on all workers. A tf.data service may never give its first batch."""
        self.feed(self.seconds if self.config.data.service else max(self.seconds, self.config.start_timeout))

    @contextmanager
    def saving(self, seconds: float) -> Iterator[None]:
        """While a checkpoint is written, which may take so long."""
        self.feed(self.seconds + seconds)
        yield
        self.feed()

    def end_late(self) -> None:
        """Ends the process, and names the task that all wait for."""
        self.ends_within(TALK_SECONDS)
        batches, in_call = self._batches(), self.in_call or self._waits()
        if self.config.data.service and in_call:
            # A service without a data worker is waited for in silence.
            end_with(PeerLost(f"{self.what}: the tf.data service gives no data"))
        if self._find_late:
            here = self.config.cluster.task
            late = self._find_late() or ({} if in_call else {here: _doing(None, in_call=False)})
            _end_for(late, self.what, here=here)
        end_stalled(
            self.config,
            self.what,
            State(count=batches, in_call=in_call, doing=_doing(None if self.alone else batches, in_call=in_call)),
        )


def end_stalled(
    config: Config, what: str, state: State, *, kind: str = "", answer_seconds: float = ANSWER_SECONDS
) -> NoReturn:
    """Ends this task, in which nothing moves, with a line that names the task that all wait for.

    Args:
        what: what did not happen.
        state: how far this task is.
        kind: of the watch, by which tasks compare only what can be compared.
        answer_seconds: how much later another task may see that nothing moves.
    """
    cluster = config.cluster
    tasks = cluster.trainers
    if len(tasks) < 2:
        end_with(Stalled(f"{what}: {state.doing}"))
    if config.strategy != "MultiWorkerMirrored":
        hosts = cluster.peers(WORKER) if config.strategy == "TPU" else {}
        _end_for(find_mute(hosts), what, here=cluster.task)
    found: dict[Task, State | None] = {}
    with suppress(tf.errors.OpError):
        compat.set_key_value(_key(cluster.task, kind), json.dumps(asdict(state)))
    for task in tasks:
        found[task] = None
        with suppress(tf.errors.OpError):
            found[task] = State(**json.loads(compat.get_key_value(_key(task, kind), seconds=answer_seconds)))
    with suppress(tf.errors.OpError):
        # The leader keeps these words: it stays until all have read them.
        compat.wait_at_barrier(f"dtj-stall{kind}", seconds=answer_seconds)
    late = latest({task: None if seen is None else (seen.count, seen.in_call) for task, seen in found.items()})
    _end_for({task: seen.doing if (seen := found[task]) else SILENT for task in late}, what, here=cluster.task)


def find_silent(tasks: Iterable[Task], *, seconds: float = ANSWER_SECONDS) -> Mapping[Task, str]:
    """Those of other tasks, all TensorFlow servers of this one's cluster, that do not answer within this time."""
    silent = dict.fromkeys(tasks, SILENT)

    def ask(task: Task) -> None:
        with suppress(tf.errors.OpError), tf.device(task.cpu):
            tf.raw_ops.Identity(input=here).numpy()
            answered.put(task)

    # To make it over there would hold the interpreter's lock until that task answers.
    here = tf.constant(0)
    answered: Queue[Task] = Queue()
    for task in silent:
        threading.Thread(target=ask, args=(task,), name=f"asks {task}", daemon=True).start()
    until = time.monotonic() + seconds
    with suppress(Empty):
        while silent:
            del silent[answered.get(timeout=max(0.0, until - time.monotonic()))]
    return silent


def find_mute(tasks: Mapping[Task, Address], *, seconds: float = ANSWER_SECONDS) -> Mapping[Task, str]:
    """Those whose servers do not greet who connects within this time, as gRPC does. `find_silent` would name all that
    take part in a step: TensorFlow has a host of a TPU do one thing after the other.
    """

    def greets(address: Address) -> bool:
        with suppress(OSError), socket.create_connection((address.host, address.port), seconds) as caller:
            return bool(caller.recv(1))
        return False

    with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as pool:
        answers = pool.map(greets, tasks.values())
        return {task: SILENT for task, greeted in zip(tasks, answers, strict=True) if not greeted}


def sums_begun(waits: Waiting | None, where: str) -> State:
    """How far a task is that is known by its sums over the replicas alone.

    Args:
        waits: counts them; None where the replicas are all in this process.
        where: how the step is shown.
    """
    begun, ended = waits.begun_and_ended if waits else (0, 0)
    what = "waits for the others" if begun > ended else "waits for its data, or is in the script's own code,"
    return State(count=begun, in_call=begun > ended, doing=f"{what} in {where}")


def latest(found: Mapping[Task, tuple[int, bool] | None]) -> list[Task]:
    """The tasks that the others wait for: those that do not answer, else those with the fewest batches, else those that
    have not begun the step; none where all are alike.

    Args:
        found: of each task the batches that its data gave, and whether it is in a step; None where it did not answer.
    """
    if silent := [task for task, state in found.items() if state is None]:
        return silent
    least = min(state for state in found.values() if state is not None)
    late = [task for task, state in found.items() if state == least]
    return [] if len(late) == len(found) else late


def _end_for(late: Mapping[Task, str], what: str, *, here: Task) -> NoReturn:
    """Ends this task because of those that are late, and of what each of them does."""
    if doing := late.get(here):
        end_with(Stalled(f"{what}: {doing}"))
    names = ", ".join(f"{task} {doing}" for task, doing in late.items())
    end_with(PeerLost(f"{what}: {names or 'a task of this job hangs'}"))


def _doing(batches: int | None, *, in_call: bool) -> str:
    """Args:
    batches: None if they are not counted, as in a job of one process.
    """
    what = "waits in a step" if in_call else "is outside of its steps, as in a callback or a validation"
    return what if batches is None else f"{what}, after {batches} batches of its data"


def _key(task: Task, kind: str) -> str:
    return f"dtj-stall{kind}/{task}"


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


class LoopWatch(TaskWatch):
    """Watches nothing before `begin`, and after `pause`."""

    ends_stuck_python = False

    def __init__(
        self, config: Config, state: Callable[[], State], *, kind: str, first_seconds: float = math.inf
    ) -> None:
        """Args:
        state: how far this task is.
        kind: see `end_stalled`.
        first_seconds: what the first step may take without `--stall-timeout`.
        """
        super().__init__(config, "no step was finished", config.stall_timeout)
        self._state = state
        self._kind = kind
        self._first_seconds = first_seconds
        self._longest = 0.0
        self._since = time.monotonic()
        self._on = self._watches = False

    def begin(self) -> None:
        """A step begins. The first one traces and compiles, on all workers."""
        self._on, self._since = True, time.monotonic()
        if self._longest:
            self._watches = True
            self.feed()
            return
        given = max(self.config.stall_timeout, self.config.start_timeout)
        first = given if self.config.stall_timeout_given else self._first_seconds
        self._watches = first < math.inf
        if self._watches:
            self.feed(first)

    def done(self) -> None:
        """A step is done, and the next one begins."""
        now = time.monotonic()
        self._longest = max(self._longest, now - self._since)
        self._since = now
        if not self.config.stall_timeout_given:
            self.seconds = max(self.config.stall_timeout, _LONGER_AT_MOST * self._longest)
        if self._on:
            self._watches = True
            self.feed()

    def moved(self, *, may_take: float = 0.0) -> None:
        """The step goes on.

        Args:
            may_take: seconds that what comes now may take in addition.
        """
        if self._watches:
            self.feed(self.seconds + may_take)

    def pause(self) -> None:
        """No step is under way."""
        self._on = self._watches = False
        self.rest()

    def end_late(self) -> None:
        """Ends the process, and names the task that all wait for."""
        self.ends_within(TALK_SECONDS)
        # Others may have measured another longest step.
        later = 0.0 if self.config.stall_timeout_given else self.seconds / _LONGER_AT_MOST
        what = f"{self.what} for {self.seconds:.4g} s (--stall-timeout)"
        end_stalled(self.config, what, self._state(), kind=self._kind, answer_seconds=max(ANSWER_SECONDS, later))


class FitWatch:
    """Watches the steps of Keras' `fit`, `evaluate` and `predict` by several workers; nothing between these steps.

    What a callback does may take any time.
    """

    def __init__(self, config: Config) -> None:
        self._watch = LoopWatch(config, self._state, kind="-fit", first_seconds=config.stall_timeout)
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
