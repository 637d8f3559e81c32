"""How far the training is: the numbers, the line that people read, and the document that the operator reads.

Pure apart from the injected clock. Must not import TensorFlow, and must never be able to hurt the training.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

_RATE_SECONDS = 20.0


class Phase(StrEnum):
    """What the task is doing."""

    GATE = "Gate"
    BUILDING = "Building"
    TRAINING = "Training"
    EVALUATING = "Evaluating"
    EXPORTING = "Exporting"
    DONE = "Done"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One moment of a run. What is not known yet is None."""

    phase: Phase = Phase.GATE
    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    """Counted from 1."""
    epochs: int | None = None
    examples_per_second: float | None = None
    eta_seconds: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    last_checkpoint_step: int | None = None
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
            "phase": str(self.phase),
            "step": self.step,
            "totalSteps": self.total_steps,
            "epoch": self.epoch,
            "percent": self.percent,
            "etaSeconds": None if self.eta_seconds is None else round(self.eta_seconds),
            "examplesPerSecond": None if self.examples_per_second is None else round(self.examples_per_second, 1),
            "metrics": {name: f"{value:.4g}" for name, value in self.metrics.items()} or None,
            "lastCheckpointStep": self.last_checkpoint_step,
            "export": self.export,
            "updatedAt": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return {name: value for name, value in values.items() if value is not None}

    def line(self) -> str:
        """`step 450/1000 (45%)  epoch 3/5  loss 0.4123  accuracy 0.912  12.3k examples/s  ETA 1m02s`"""
        parts = [f"step {self.step}/{self.total_steps} ({self.percent}%)", f"epoch {self.epoch}/{self.epochs}"]
        digits = {"loss": 4}
        parts += [f"{name} {value:.{digits.get(name, 3)}f}" for name, value in self.metrics.items()]
        if self.examples_per_second is not None:
            parts.append(f"{short_number(self.examples_per_second)} examples/s")
        if self.eta_seconds is not None:
            parts.append(f"ETA {short_time(self.eta_seconds)}")
        return "  ".join(parts)


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
