"""Replicas that are slower than the others, by what each reports of its own steps.

An event reports them when they first show; nothing else is done. If each step waits for all replicas, all have the same
pace, and only a replica itself knows how long its own part of a step takes (``stepSeconds``). Else the time between its
steps is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from dtj.api.names import Reason
from dtj.api.status import MAX_STRAGGLERS
from dtj.core.actions import Emit
from dtj.core.context import JobContext
from dtj.core.observed import Straggler
from dtj.core.progress import progress


def report_new(context: JobContext) -> tuple[Emit, ...]:
    """An event for each slow replica that the status does not list yet, and is about to."""
    before, now = context.job.status.progress, progress(context)
    known = before.stragglers if before is not None else ()
    listed = now.stragglers if now is not None else ()
    new = (s for s in context.observed.stragglers if s.hostname in listed and s.hostname not in known)
    return tuple(_event(context, straggler) for straggler in new)


def _event(context: JobContext, straggler: Straggler) -> Emit:
    node = next((pod.node for pod in context.current if f"{pod.role}-{pod.index}" == straggler.hostname), "")
    words = (
        f"{straggler.hostname} is slower than the others: its steps take {straggler.times:.1f} times as long as "
        f"the median" + (f"; look at node {node}" if node else "")
    )
    return Emit("Warning", Reason.STRAGGLING, words)


FACTOR: Final = 1.5
"""So much longer than the median a slow replica's steps take."""

MIN_REPLICAS: Final = 3
"""Replicas without which there is no median to speak of."""

READINGS: Final = 3
"""In this many readings in a row a replica must be slow to be named."""

MIN_STEPS: Final = 10
"""Steps that the median replica must do between two readings: of fewer, the time is not known well."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a pod reported: ``at`` in seconds of any clock that is the same for all."""

    at: float
    step: int | None
    step_seconds: float | None


def slow(before: Mapping[str, Reading], now: Mapping[str, Reading], *, in_step: bool) -> tuple[Straggler, ...]:
    """Those of ``now`` that are slow, the slowest first. Keys are host names; ``in_step`` is whether all go at one
    pace."""
    seconds = {name: reading.step_seconds for name, reading in now.items() if reading.step_seconds is not None}
    if len(seconds) < MIN_REPLICAS and not in_step:
        seconds = _between_steps(before, now)
    if len(seconds) < MIN_REPLICAS:
        return ()
    usual = median(seconds.values())
    found = (Straggler(name, own / usual) for name, own in seconds.items() if own > FACTOR * usual > 0)
    return tuple(sorted(found, key=lambda straggler: -straggler.times))


def _between_steps(before: Mapping[str, Reading], now: Mapping[str, Reading]) -> dict[str, float]:
    """Seconds of a step since the last reading; of who did none, the whole time: it takes no less."""
    steps: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for name, reading in now.items():
        earlier = before.get(name)
        if earlier is None or reading.step is None or earlier.step is None or reading.step < earlier.step:
            continue
        steps[name] = reading.step - earlier.step
        seconds[name] = (reading.at - earlier.at) / max(steps[name], 1)
    enough = len(steps) >= MIN_REPLICAS and median(steps.values()) >= MIN_STEPS
    return seconds if enough else {}


def streaks(before: Mapping[str, int], found: Iterable[Straggler]) -> dict[str, int]:
    """By host name: in how many readings in a row a replica was slow, this one included."""
    return {straggler.hostname: before.get(straggler.hostname, 0) + 1 for straggler in found}


def lasting(found: Iterable[Straggler], in_a_row: Mapping[str, int]) -> tuple[Straggler, ...]:
    """Those that have been slow long enough to be named, as many as the status holds."""
    return tuple(each for each in found if in_a_row.get(each.hostname, 0) >= READINGS)[:MAX_STRAGGLERS]
