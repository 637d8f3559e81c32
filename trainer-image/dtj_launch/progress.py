"""How far the training is: the numbers, and what GET /status and /metrics answer.

`DTJCallback` and `report` show a training to the operator, with the Keras that calls them, in any image that has
dtj-launch. A training must never be hurt by being watched: what fails here is one warning. Standard library only.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from itertools import islice
from typing import Any

from . import nccl_log
from .errors import CORRUPT_VARIABLE
from .ledger import Doing, Ledger
from .metrics_file import SPEED, MetricsFile
from .status_server import serve_status
from .world import GENERATION

log, UTC = logging.getLogger(__name__), timezone.utc
_RATE_SECONDS, _LOOK_SECONDS = 20.0, 0.5
_MOST_METRICS, _MOST_UNCHECKED, _NAME_LENGTH = 32, 8, 253
"""What the operator takes."""
_MOST_OF_ARRAY = 100
"""Numbers of one metric that are shown."""


class Phase(Enum):
    """What the task is doing."""

    WAITING = "Waiting"
    """It is no member of the world of an elastic job yet; all is imported."""
    GATE = "Gate"
    BUILDING = "Building"
    TRAINING = "Training"
    EVALUATING = "Evaluating"
    EXPORTING = "Exporting"
    DONE = "Done"


@dataclass(frozen=True)
class Progress:
    """One moment of a run. What is not known yet is None."""

    phase: Phase = Phase.GATE
    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    """Counted from 1."""
    epochs: int | None = None
    examples_per_second: float | None = None
    step_seconds: float | None = None
    """Of this replica's own part of a step."""
    eta_seconds: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    last_checkpoint_step: int | None = None
    """Of those that stay when all pods go: no copy in memory."""
    attempt: int | None = None
    """Of the whole job, as the operator counts."""
    restarts_in_place: int | None = None
    """How often the launcher started this task again without a new pod."""
    world: int | None = None
    """The generation of the list of members that an elastic job trains with."""
    transport: str | None = None
    """What carries the gradients between GPUs, as NCCL says it."""
    warning: str | None = None
    unchecked: tuple[str, ...] = ()
    """Parts of the model that the user has accepted unchecked."""
    corrupt: Mapping[str, Any] | None = None
    """Why this task started again in place last, if replicas differed: `replicas` and `workers` that are wrong, or may
    be, the `step` at which it was found, the first `variable`, and the number of the `start` that followed."""
    export: Mapping[str, Any] | None = None
    """The exported model, as `dtj_trainer.export.versions.Bundle` reports it."""

    @property
    def percent(self) -> int | None:
        """Whole percent of the steps that are done, rounded down: 100 means all."""
        if self.step is None or not self.total_steps:
            return None
        return min(100, 100 * self.step // self.total_steps)

    def document(self, now: datetime) -> dict[str, Any]:
        """The JSON of GET /status: metrics as text, as Kubernetes wants them; nothing for what is not known."""
        values = {
            "phase": self.phase.value,
            "step": self.step,
            "totalSteps": self.total_steps,
            "epoch": self.epoch,
            "percent": self.percent,
            "etaSeconds": None if self.eta_seconds is None else round(self.eta_seconds),
            "examplesPerSecond": None if self.examples_per_second is None else round(self.examples_per_second, 1),
            "stepSeconds": self.step_seconds,
            "metrics": {name: f"{value:.4g}" for name, value in islice(self.metrics.items(), _MOST_METRICS)} or None,
            "lastCheckpointStep": self.last_checkpoint_step,
            "attempt": self.attempt,
            "restartsInPlace": self.restarts_in_place,
            "world": self.world,
            "transport": self.transport,
            "warning": self.warning,
            "unchecked": list(self.unchecked) or None,
            "corrupt": self.corrupt,
            "export": self.export,
            "updatedAt": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return {name: value for name, value in values.items() if value is not None}

    def exposition(self, now: datetime) -> str:
        """The same for Prometheus: gauges named `dtj_training_…`, with the metrics under `dtj_training_metric`."""
        lines = [
            line
            for name, text in _GAUGES.items()
            if (value := getattr(self, name)) is not None
            for line in _gauge(name, text, {"": value})
        ]
        lines += _gauge("phase", "1 for what the task is doing", {f'{{phase="{self.phase.value}"}}': 1})
        if self.metrics:
            named = {f'{{name="{_escaped(name)}"}}': float(value) for name, value in self.metrics.items()}
            lines += _gauge("metric", "what the training measures, by name", named)
        lines += _gauge("updated_timestamp_seconds", "when the training last reported its state", {"": now.timestamp()})
        return "\n".join(lines) + "\n"


_GAUGES = {
    "step": "steps done",
    "total_steps": "steps that the run is to do",
    "epoch": "the epoch under way, from 1",
    "epochs": "epochs that the run is to do",
    "examples_per_second": "over all replicas, in the last seconds",
    "step_seconds": "this replica's own part of a step, without waiting for the others",
    "eta_seconds": "until the last step",
    "last_checkpoint_step": "step of the newest checkpoint",
}


def _gauge(name: str, text: str, values: Mapping[str, Any]) -> list[str]:
    """The lines of one metric: labels -> value."""
    full, numbers = f"dtj_training_{name}", {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
    head = [f"# HELP {full} {text}", f"# TYPE {full} gauge"]
    return head + [f"{full}{labels} {numbers.get(str(value), value)}" for labels, value in values.items()]


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


_COUNTED = {"attempt": "DTJ_ATTEMPT", "restarts_in_place": "DTJ_RESTARTS_IN_PLACE", "world": GENERATION}
"""What the operator and the launcher count."""


class ProgressStore:
    """Where the training writes its progress and the status server reads it, without waiting for each other."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        """Args:
        ledger: what the time went into, to be shown; None where another task shows it.
        """
        self.ledger, self._shows_ledger = ledger or Ledger(), ledger is not None
        # One reference to one frozen value: replacing it is atomic, so neither side needs a lock.
        counted = {field: os.environ.get(name, "") for field, name in _COUNTED.items()}
        known: dict[str, Any] = {field: int(text) for field, text in counted.items() if text.isdecimal()}
        # The launcher wrote it.
        corrupt = json.loads(os.environ.get(CORRUPT_VARIABLE) or "null")
        begun = Progress(corrupt=corrupt, **known)
        self._state = (begun, datetime.now(UTC))

    @property
    def progress(self) -> Progress:
        """The latest moment."""
        return self._state[0]

    def update(self, **changes: Any) -> Progress:
        """Changes fields of `Progress` and returns the new moment."""
        self._state = (replace(self._state[0], **changes), datetime.now(UTC))
        return self._state[0]

    def document(self) -> dict[str, Any]:
        """The latest moment, as GET /status shows it."""
        transport = nccl_log.transport(os.environ) or None
        progress, moment = self._state
        shows_ledger = self._shows_ledger and (self.ledger.told or progress.phase is not Phase.TRAINING)
        spent = self.ledger.document() if shows_ledger else {}
        return {**replace(progress, transport=transport).document(moment), **spent}

    def exposition(self) -> str:
        """The latest moment, as GET /metrics shows it: Prometheus' text format, version 0.0.4."""
        return self._state[0].exposition(self._state[1])


class Meter:
    """Rates from the steps of the last seconds and, for the result, of the whole run."""

    def __init__(self, *, batch: int, step: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        batch: examples in one step, over all replicas.
        step: where the run starts.
        """
        self._batch = batch
        self._clock = clock
        self._marks = deque([(clock(), step)])
        self._first: tuple[float, int] | None = None

    def mark(self, step: int) -> None:
        """Notes that this many steps are done."""
        now = self._clock()
        if self._first is None:
            # The first call traces and compiles: its time says nothing about the rate.
            self._marks.clear()
            self._first = (now, step)
        self._marks.append((now, step))
        while len(self._marks) > 2 and now - self._marks[1][0] >= _RATE_SECONDS:
            self._marks.popleft()

    @property
    def steps_per_second(self) -> float | None:
        """Of the last seconds; None before there are two marks."""
        return _rate(self._marks[0], self._marks[-1])

    @property
    def examples_per_second(self) -> float | None:
        """Of the last seconds."""
        rate = self.steps_per_second
        return None if rate is None else rate * self._batch

    @property
    def overall_examples_per_second(self) -> float | None:
        """Of the whole run but its first call."""
        rate = _rate(self._first or self._marks[0], self._marks[-1])
        return None if rate is None else rate * self._batch

    def eta(self, total_steps: int) -> float | None:
        """Seconds until this many steps are done."""
        rate = self.steps_per_second
        return None if not rate else max(0.0, (total_steps - self._marks[-1][1]) / rate)


def _rate(first: tuple[float, int], last: tuple[float, int]) -> float | None:
    seconds, steps = last[0] - first[0], last[1] - first[1]
    return steps / seconds if seconds > 0 and steps > 0 else None


class _Publisher:
    """What this process shows of a training that the trainer does not drive."""

    def __init__(self) -> None:
        self.store: ProgressStore | None = None
        self.meter: Meter | None = None
        self.metrics_file = MetricsFile()
        self.warned = False

    def shown(self) -> ProgressStore:
        """The store that is served on DTJ_STATUS_PORT; where there is no such port nobody looks at it."""
        if self.store is None:
            self.store = ProgressStore(Ledger.kept(os.environ))
            self.store.update(phase=Phase.TRAINING)
            if port := os.environ.get("DTJ_STATUS_PORT"):
                serve_status(self.store, int(port), host=os.environ.get("DTJ_BIND_ADDRESS", ""))
        return self.store


_publisher = _Publisher()


def publish_on(store: ProgressStore) -> None:
    """From now on `report` and `DTJCallback` write to this store, which is served already."""
    _publisher.store = store


def _harmless(function: Callable[..., None]) -> Callable[..., None]:
    """What goes wrong in the function is one warning."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> None:
        try:
            function(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - a training must not end because it is watched
            if not _publisher.warned:
                _publisher.warned = True
                log.warning(f"the progress is not shown: {type(error).__name__}: {error}")

    return call


def _numbers(results: Mapping[Any, Any]) -> dict[str, float]:
    """Results of metrics by name, those in mappings and arrays included; what is no number is left out.

    Those of arrays come last: where there are too many, the others are shown.
    """
    found: dict[str, float] = {}
    of_arrays: dict[str, float] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            found.update(_numbers(value))
            continue
        try:
            found[str(name)] = float(value)
        except Exception:  # noqa: BLE001 - each library has its own error for an array
            elements = enumerate(islice(_elements(value), _MOST_OF_ARRAY))
            of_arrays.update({f"{name}_{index}": one for index, one in elements})
    return {**found, **of_arrays}


def _elements(value: Any) -> Iterator[float]:
    """The numbers of an array, row by row; none of anything else."""
    with suppress(Exception):
        for one in () if isinstance(value, (str, bytes)) else value:
            try:
                number = float(one)
            except Exception:  # noqa: BLE001 - see `_numbers`
                yield from _elements(one)
            else:
                yield number


@_harmless
def report(
    *,
    step: int | None = None,
    total: int | None = None,
    epoch: int | None = None,
    epochs: int | None = None,
    metrics: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    step_seconds: float | None = None,
    last_checkpoint: int | None = None,
) -> None:
    """Shows how far a training is, on GET /status and /metrics of DTJ_STATUS_PORT; what is left out stays.

    Cheap, but it turns metrics into numbers, which waits for the device: call it some times a second at most.

    Args:
        step: steps done. Reported before the first step, too, it says where a restart goes on.
        total: steps that the run is to do.
        epoch: the one under way, counted from 1.
        metrics: name -> anything that float() takes, or an array of it, shown as name_0, name_1 and so on.
        batch_size: examples in one step, over all replicas; without it the rate stays unknown.
        step_seconds: of this replica's own part of a step, without waiting for others: it shows which one is slow.
        last_checkpoint: step of the newest checkpoint.
    """
    store = _publisher.shown()
    given = {"step": step, "total_steps": total, "epoch": epoch, "epochs": epochs}
    given["last_checkpoint_step"] = last_checkpoint
    changes: dict[str, Any] = {name: int(value) for name, value in given.items() if value is not None}
    if step_seconds is not None and 0 < step_seconds < float("inf"):
        changes["step_seconds"] = float(step_seconds)
    if metrics is not None:
        changes["metrics"] = _numbers(metrics)
    if step is not None:
        if _publisher.meter is None:
            _publisher.meter = Meter(batch=batch_size or 0, step=step)
        _publisher.meter.mark(step)
        store.ledger.took(step, step)
        total = changes.get("total_steps", store.progress.total_steps)
        changes["eta_seconds"] = _publisher.meter.eta(total) if total else None
        # Nothing a second is what comes out where the batch is not known.
        changes["examples_per_second"] = _publisher.meter.examples_per_second or None
    progress = store.update(phase=Phase.TRAINING, **changes)
    if step is not None and metrics is not None:
        rate = progress.examples_per_second
        _publisher.metrics_file.write(int(step), {**progress.metrics, **({SPEED: rate} if rate else {})})


@_harmless
def note(write: Callable[[Ledger], object]) -> None:
    """Has something written to the ledger of this training."""
    write(_publisher.shown().ledger)


@contextmanager
def doing(what: Doing) -> Iterator[None]:
    """Within this, the training does this."""
    before: list[Doing] = []
    note(lambda ledger: before.append(ledger.enter(what)))
    try:
        yield
    finally:
        note(lambda ledger: ledger.enter(before[0]))


@_harmless
def show_unchecked(name: str) -> None:
    """Shows that the user has accepted a part of the model unchecked; nothing where no store is published on."""
    if _publisher.store is not None:
        known = _publisher.store.progress.unchecked
        names = tuple(dict.fromkeys((*known, name[:_NAME_LENGTH])))
        _publisher.store.update(unchecked=names[:_MOST_UNCHECKED])


class DTJCallback:
    """Shows the progress of `fit`; for `callbacks=[DTJCallback()]` of Keras 3 and of tf_keras alike.

    It has every method that either of them calls, and the base class of neither, so both may be installed.
    """

    _supports_tf_logs = True

    def __init__(self, *, batch_size: int | None = None) -> None:
        """Args:
        batch_size: examples in one step, over all replicas; `fit` does not tell it. Without it, no rate is shown.
        """
        self._batch_size = batch_size
        self._params: Mapping[str, Any] = {}
        self._epoch = self._before = self._in_epoch = 0
        self._next_look, self._summed = 0.0, 1
        self._before_test: Doing | None = None

    def set_params(self, params: Mapping[str, Any] | None) -> None:
        """What `fit` knows of itself."""
        self._params = params or {}

    def set_model(self, model: Any) -> None:
        """Keras 2 adds up the means of all workers in what it reports a batch (reduce_per_replica of its Model)."""
        strategy: Any = getattr(model, "distribute_strategy", None)
        kinds = {f"{kind.__module__}.{kind.__name__}" for one in (model, strategy) for kind in type(one).__mro__}
        if any(name.endswith(".CollectiveAllReduceStrategy") for name in kinds) and any(".engine." in k for k in kinds):
            self._summed = strategy.num_replicas_in_sync // len(strategy.extended.worker_devices)

    def on_train_begin(self, logs: Any = None) -> None:
        """Another `fit` counts from zero."""
        self._before = self._in_epoch = 0
        _publisher.meter = None
        note(Ledger.goes_on)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The steps of the epochs before are counted, or, after a start in the middle, known from their length."""
        self._before = self._before + self._in_epoch or epoch * (self._params.get("steps") or 0)
        self._epoch, self._in_epoch = epoch + 1, 0
        if epoch and not self._before:
            note(lambda ledger: ledger.resumed(None))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Looks at most twice a second."""
        before, self._in_epoch = self._in_epoch, batch + 1
        note(lambda ledger: ledger.took(self._before + before, self._before + self._in_epoch))
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._report(self._of_batch(logs))

    def on_test_begin(self, logs: Any = None) -> None:
        """A validation, within `fit` or not."""

        def begin(ledger: Ledger) -> None:
            before = ledger.enter(Doing.VALIDATING)
            # Else another callback has noted it.
            self._before_test = None if before is Doing.VALIDATING else before

        note(begin)

    def on_test_end(self, logs: Any = None) -> None:
        """What was done before goes on."""
        if before := self._before_test:
            note(lambda ledger: ledger.enter(before))

    def on_train_end(self, logs: Any = None) -> None:
        """No step follows, or those of another `fit`."""
        note(lambda ledger: ledger.enter(Doing.OTHER))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Its metrics are those of the epoch, with the validation's."""
        self._report(logs)

    def _of_batch(self, logs: Any) -> Any:
        if self._summed == 1:
            return logs
        return {k: v / self._summed for k, v in (logs or {}).items() if not isinstance(v, Mapping)}

    def _report(self, logs: Any) -> None:
        steps, epochs = self._params.get("steps"), self._params.get("epochs")
        report(
            step=self._before + self._in_epoch,
            total=steps * epochs if steps and epochs else None,
            epoch=self._epoch,
            epochs=epochs,
            metrics=logs or None,
            batch_size=self._batch_size,
        )

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    _implements_predict_batch_hooks = _implements_test_batch_hooks

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Nothing to show there."""

    on_predict_begin = on_predict_end = on_batch_begin = on_batch_end = on_train_batch_begin = _ignore
    on_test_batch_begin = on_test_batch_end = on_predict_batch_begin = on_predict_batch_end = _ignore
