"""Says of a sample whether it did harm."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from dtj.app.health import LONGEST_STANDSTILL_SECONDS
from operator_adversaries.cluster import AFTER, BYSTANDER, LATE, PEER
from operator_adversaries.places import MADE
from operator_adversaries.play import Facts, play
from operator_adversaries.sample import Sample, Submit

FINE, DIED, HANGS, DEFECT, OTHERS, MEMORY, LOOP, UNNAMED, NOISE, COST, MISSED = (
    "fine", "died", "hangs", "defect", "others", "memory", "loop", "unnamed", "noise", "cost", "not reached",
)  # fmt: skip
KINDS: Final = (FINE, DIED, HANGS, DEFECT, OTHERS, MEMORY, LOOP, UNNAMED, NOISE, COST, MISSED)

KEPT: Final = {
    "pods": 256 * 1024, "services": 32 * 1024, "claims": 32 * 1024, "policies": 32 * 1024, "gangs": 4 * 2**20,
    "jobs": 1024 * 1024, "caches": 1024 * 1024, "events": 16 * 1024,
}  # fmt: skip
"""Bytes of memory that an object may take, by its kind. Of most texts some hundred characters are kept; of a world
40,000, of the status of a Workload 512 KiB of JSON."""

HELD_SECONDS: Final = 2.0
"""CPU for which one piece of work may hold the loop: a lease is given up after 7."""

MOST_WRITES: Final = 12
"""Of one object in five quiet minutes: what is refused is tried again each minute."""

MOST_REPORTS: Final = 40
"""Where a pod answers another thing each time that it is asked."""

MOST_LINES: Final = 6
"""Of one kind: what is refused is said at growing intervals."""


MOST_LINES_OF_PLAN: Final = 700
"""Lines of Python that a plan may run for each pod of a load. One that runs more is looked at with twice the pods."""

GROWS_BY: Final = 2.4
"""So many times the lines a plan may run then. What is linear runs twice as many at most; if a quarter of them grew
with the square, it would be 2.5 times."""


@dataclass(frozen=True)
class Verdict:
    """What came of a sample, and a line that says how it shows."""

    kind: str
    why: str = ""

    @property
    def fault(self) -> bool:
        return self.kind not in (FINE, MISSED)

    def __str__(self) -> str:
        return f"{self.kind}: {self.why}" if self.why else self.kind


def judge(sample: Sample) -> Verdict:
    """Play it, and judge."""
    found = verdict(sample, play(sample))
    if found.kind != COST or sample.load is None:
        return found
    again = play(sample)  # the first plan of a process costs more: patterns are compiled
    larger = replace(sample, load=replace(sample.load, pods=2 * sample.load.pods))
    more = play(larger)
    return found if more.cost > GROWS_BY * again.cost else verdict(larger, more, costly=True)


def verdict(sample: Sample, facts: Facts, *, costly: bool = False) -> Verdict:
    """The worst of what was seen; ``costly`` plans are none of it."""
    if facts.cut_off:
        return _cut_off(facts)
    if facts.died is not None:
        return Verdict(DIED, _place(facts.died))
    if not facts.reached:
        return Verdict(MISSED)
    if sample.load is not None and not costly and facts.cost > MOST_LINES_OF_PLAN * (sample.load.pods + 50):
        return Verdict(COST, f"a plan for {sample.load.pods} pods runs {facts.cost:,} lines of Python")
    if facts.lease_lost:
        return Verdict(HANGS, facts.lease_lost)
    if facts.standstill > LONGEST_STANDSTILL_SECONDS:
        return Verdict(HANGS, f"a pass stood still for {facts.standstill:.0f} s")
    defects = [record for record in facts.lines if record.exc_info and record.exc_info[1] is not None]
    if not sample.raises and (facts.defects or defects or facts.watch_ends):
        where = _place(defects[0].exc_info[1]) if defects else ""  # type: ignore[index,arg-type]
        return Verdict(DEFECT, f"{facts.defects} {facts.watch_ends[:1]} {where}")
    if (others := _others(sample, facts)) is not None:
        return others
    if facts.to_be_said and not any(MADE in f"{record.getMessage()} {record.exc_info}" for record in facts.lines):
        return Verdict(UNNAMED, "no line says what was raised")
    if large := [f"{kind} {size:,}" for kind, size in facts.sizes.items() if size > KEPT[kind]]:
        return Verdict(MEMORY, ", ".join(large))
    if facts.longest > HELD_SECONDS:
        return Verdict(HANGS, f"the loop was held for {facts.longest:.1f} s")
    most = MOST_WRITES if len(sample.answers) < 2 else MOST_REPORTS
    if often := [f"{what} {times} times" for what, times in facts.writes.items() if times > most]:
        return Verdict(LOOP, ", ".join(often))
    if facts.unnamed:
        return Verdict(UNNAMED, ", ".join(facts.unnamed))
    kinds = Counter(
        f"{record.name} {record.msg} {re.sub(r'[0-9.]+', 'N', record.getMessage())[:120]}" for record in facts.lines
    )
    most_lines = 40 * len(sample.faults) if sample.faults else MOST_LINES
    if sample.load is not None:  # a pass that is refused is tried again for as long as there is more to do
        most_lines = 40 + sample.load.pods // 4
    if noise := [f"{line!r} {times} times" for line, times in kinds.items() if times > most_lines]:
        return Verdict(NOISE, noise[0])
    return Verdict(FINE)


def _cut_off(facts: Facts) -> Verdict:
    """A sample that took too long: it may be one of 10,000 pods, and no fault."""
    if facts.longest > HELD_SECONDS:
        return Verdict(HANGS, f"the loop was held for {facts.longest:.1f} s")
    if often := [f"{what} {times} times" for what, times in facts.writes.items() if times > 4 * MOST_WRITES]:
        return Verdict(LOOP, ", ".join(often))
    return Verdict(MISSED)


def _others(sample: Sample, facts: Facts) -> Verdict | None:
    wanted = [PEER, BYSTANDER, AFTER]
    lasting = any(fault.seconds >= 10**6 for fault in sample.faults)
    submitted = any(isinstance(act, Submit) and act.name == LATE for act in sample.acts)
    if submitted and (sample.faults or sample.raises) and not lasting:
        wanted.append(LATE)
    late = {name: facts.states.get(name, "not there") for name in wanted if facts.states.get(name) != "Running"}
    if late:
        return Verdict(OTHERS, ", ".join(f"{name} is {state or 'without a status'}" for name, state in late.items()))
    if facts.touched:
        return Verdict(OTHERS, f"what is nobody's was changed or deleted: {', '.join(facts.touched)}")
    if not facts.in_time:
        return Verdict(OTHERS, f"{LATE} does not run while something fails that it does not need")
    return None if facts.same_pods else Verdict(OTHERS, f"{PEER} or {BYSTANDER} has other pods")


def _place(error: BaseException) -> str:
    """The error, and where in the operator it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/operator/dtj/" in frame.filename]
    where = f" at {frames[-1].filename.partition('/operator/')[2]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{where}"
