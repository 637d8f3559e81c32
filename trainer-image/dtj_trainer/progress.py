"""How far the training is: the numbers, the line that people read, and what GET /status and /metrics answer.

This file alone, copied into any image with Python 3.8 or newer, shows a training to the operator: it needs the
standard library and nothing of this package, and `DTJCallback` takes the Keras that calls it. A training must never
be hurt by being watched: what fails here is one warning.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

UTC = timezone.utc  # noqa: UP017 - of Python 3.11

_RATE_SECONDS = 20.0
_STACKS_SECONDS = 10.0


class Phase(Enum):
    """What the task is doing."""

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
    attempt: int | None = None
    """Of the whole job, as the operator counts."""
    restarts_in_place: int | None = None
    """How often the launcher started this task again without a new pod."""
    export: Mapping[str, Any] | None = None
    """The exported model, as `dtj_trainer.export.bundle.Bundle` tells of it."""

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
            "metrics": {name: f"{value:.4g}" for name, value in self.metrics.items()} or None,
            "lastCheckpointStep": self.last_checkpoint_step,
            "attempt": self.attempt,
            "restartsInPlace": self.restarts_in_place,
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
        lines += _gauge("updated_timestamp_seconds", "when the training last said so", {"": now.timestamp()})
        return "\n".join(lines) + "\n"

    def line(self) -> str:
        """`step 450/1000 (45%)  epoch 3/5  loss 0.4123  accuracy 0.912  12.3k examples/s  ETA 1m02s`"""
        parts = [f"step {self.step}" + (f"/{self.total_steps} ({self.percent}%)" if self.total_steps else "")]
        if self.epoch is not None:
            parts.append(f"epoch {self.epoch}" + (f"/{self.epochs}" if self.epochs else ""))
        digits = {"loss": 4}
        parts += [f"{name} {value:.{digits.get(name, 3)}f}" for name, value in self.metrics.items()]
        if self.examples_per_second is not None:
            parts.append(f"{short_number(self.examples_per_second)} examples/s")
        if self.eta_seconds is not None:
            parts.append(f"ETA {short_time(self.eta_seconds)}")
        return "  ".join(parts)


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
    full = f"dtj_training_{name}"
    head = [f"# HELP {full} {text}", f"# TYPE {full} gauge"]
    return head + [f"{full}{labels} {_NUMBERS.get(str(value), value)}" for labels, value in values.items()]


_NUMBERS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
"""What Prometheus writes otherwise than Python."""


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Board:
    """Where the training writes its progress and the status server reads it, without waiting for each other."""

    def __init__(self) -> None:
        # One reference to one frozen value: replacing it is atomic, so neither side needs a lock.
        self._state = (Progress(), datetime.now(UTC))

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
        progress, when = self._state
        return progress.document(when)

    def exposition(self) -> str:
        """The latest moment, as GET /metrics shows it: Prometheus' text format, version 0.0.4."""
        progress, when = self._state
        return progress.exposition(when)


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
        """Notes that so many steps are done."""
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
        """Seconds until so many steps are done."""
        rate = self.steps_per_second
        return None if not rate else max(0.0, (total_steps - self._marks[-1][1]) / rate)


class Every:
    """True once each so many seconds, beginning one period from now."""

    def __init__(self, seconds: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last = clock()

    def due(self) -> bool:
        """Whether a period is over; if so the next one begins. Never, without a period."""
        if self._seconds is None or self._clock() - self._last < self._seconds:
            return False
        self._last = self._clock()
        return True


def short_number(value: float) -> str:
    """Three significant digits: 7.25, 843, 12.3k, 1.2M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def short_time(seconds: float) -> str:
    """9s, 1m02s, 3h05m, 2d04h."""
    whole = max(0, round(seconds))
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02d}{small}"
    return f"{whole}s"


def _rate(first: tuple[float, int], last: tuple[float, int]) -> float | None:
    seconds, steps = last[0] - first[0], last[1] - first[1]
    return steps / seconds if seconds > 0 and steps > 0 else None


def serve(board: Board, port: int, *, say: Callable[[str], object] = print) -> ThreadingHTTPServer | None:
    """Serves GET /status, /metrics and /healthz, and POST /stacks, which prints where all threads are.

    On all interfaces, on threads of its own, until the process ends.

    Returns:
        None, after one warning, where it cannot.
    """
    try:
        server = _Server(("", port), _handler(board))
    except OSError as error:
        say(f"warning: no status on port {port}: {error.strerror}; the training goes on without")
        return None
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        """Binds both address families, and spares the reverse look-up of the host's name, which can take seconds."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that hangs up in the middle is no news."""


def _handler(board: Board) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        printed = float("-inf")

        def do_GET(self) -> None:
            if self.path == "/status":
                self._answer(200, "application/json", json.dumps(board.document()))
            elif self.path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", board.exposition())
            elif self.path == "/healthz":
                self._answer(200, "text/plain", "ok\n")
            else:
                self._answer(404, "text/plain", "not found; try /status, /metrics or /healthz\n")

        def do_POST(self) -> None:
            if self.path == "/stacks" and time.monotonic() - Handler.printed >= _STACKS_SECONDS:
                Handler.printed = time.monotonic()
                faulthandler.dump_traceback(all_threads=True)
                self._answer(200, "text/plain", "the stacks are in the log\n")
            else:
                self._answer(404, "text/plain", "not found, or the stacks were printed a moment ago\n")

        def _answer(self, code: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """The task's log is for the training."""

    return Handler


class _Publisher:
    """What this process shows of a training that the trainer does not drive."""

    def __init__(self) -> None:
        self.board: Board | None = None
        self.meter: Meter | None = None
        self.warned = False

    def shown(self) -> Board:
        """The board that is served on DTJ_STATUS_PORT; where there is no such port nobody looks at it."""
        if self.board is None:
            self.board = Board()
            self.board.update(phase=Phase.TRAINING)
            if port := os.environ.get("DTJ_STATUS_PORT"):
                serve(self.board, int(port))
        return self.board


_publisher = _Publisher()


def publish_on(board: Board) -> None:
    """From now on `report` and `DTJCallback` write to this board, which is served already."""
    _publisher.board = board


def _common() -> _Publisher:
    """The trainer's own where it runs this process: a copy of this file must not serve on the same port again."""
    return getattr(sys.modules.get("dtj_trainer.progress"), "_publisher", _publisher)


def _harmless(function: Callable[..., None]) -> Callable[..., None]:
    """What goes wrong in the function is one warning."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> None:
        try:
            function(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - a training must not end because it is watched
            if not _common().warned:
                _common().warned = True
                print(f"warning: the progress is not shown: {type(error).__name__}: {error}", file=sys.stderr)

    return call


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
        step: steps done.
        total: steps that the run is to do.
        epoch: the one under way, counted from 1.
        metrics: name -> anything that float() takes.
        batch_size: examples in one step, over all replicas; without it the rate stays unknown.
        step_seconds: of this replica's own part of a step, without waiting for others: it shows which one is slow.
        last_checkpoint: step of the newest checkpoint.
    """
    publisher = _common()
    board = publisher.shown()
    given = {"step": step, "total_steps": total, "epoch": epoch, "epochs": epochs}
    given["last_checkpoint_step"] = last_checkpoint
    changes: dict[str, Any] = {name: int(value) for name, value in given.items() if value is not None}
    if step_seconds is not None and 0 < step_seconds < float("inf"):
        changes["step_seconds"] = float(step_seconds)
    if metrics is not None:
        changes["metrics"] = {str(name): float(value) for name, value in metrics.items()}
    if step is not None:
        if publisher.meter is None:
            publisher.meter = Meter(batch=batch_size or 0, step=step)
        publisher.meter.mark(step)
        total = changes.get("total_steps", board.progress.total_steps)
        changes["eta_seconds"] = publisher.meter.eta(total) if total else None
        # Nothing a second is what comes out where the batch is not known.
        changes["examples_per_second"] = publisher.meter.examples_per_second or None
    board.update(phase=Phase.TRAINING, **changes)


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
        self._epoch = 0
        self._before = 0
        self._in_epoch = 0
        self._next_look = 0.0

    def set_params(self, params: Mapping[str, Any] | None) -> None:
        """What `fit` knows of itself."""
        self._params = params or {}

    def set_model(self, model: Any) -> None:
        """The model is nobody's business here."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Another `fit` counts anew."""
        self._before = self._in_epoch = 0
        _common().meter = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The steps of the epochs before are counted, or, after a start in the middle, known from their length."""
        self._before = self._before + self._in_epoch or epoch * (self._params.get("steps") or 0)
        self._epoch, self._in_epoch = epoch + 1, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Looks at most twice a second."""
        self._in_epoch = batch + 1
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._report(logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Its metrics are those of the epoch, with the validation's."""
        self._report(logs)

    def _report(self, logs: Any) -> None:
        steps, epochs = self._params.get("steps"), self._params.get("epochs")
        numbers = {name: value for name, value in (logs or {}).items() if not isinstance(value, Mapping)}
        report(
            step=self._before + self._in_epoch,
            total=steps * epochs if steps and epochs else None,
            epoch=self._epoch,
            epochs=epochs,
            metrics=numbers or None,
            batch_size=self._batch_size,
        )

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Nothing to show there."""

    on_train_end = on_test_begin = on_test_end = on_predict_begin = on_predict_end = _ignore
    on_batch_begin = on_batch_end = on_train_batch_begin = on_test_batch_begin = on_test_batch_end = _ignore
    on_predict_batch_begin = on_predict_batch_end = _ignore


_LOOK_SECONDS = 0.5
