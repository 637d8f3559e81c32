"""Plans of clocks that differ, slow answers, events that come twice or late, and operators that are killed at a write.

What is promised: with clocks that are hours apart, and whenever its operator dies, a job comes to the same end, with
the same counters, and its deadlines are kept to within :data:`PUNCTUAL_SECONDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from support.campaigns.model_cluster import ModelCluster
from support.campaigns.stale_plans import PARTS, STREAMS, Outcome, play, plurals_of
from support.fake_gateway import Line

HOURS: Final = (-7200.0, 7200.0)
PUNCTUAL_SECONDS: Final = 15.0


class Kind(StrEnum):
    """What is wrong with the time."""

    OPERATOR = "operator"
    """The operator's clock, all the time."""

    LEADER = "leader"
    """At some event of the job another operator takes over, whose clock differs."""

    NODES = "nodes"
    """The clocks of all nodes."""

    NODE = "node"
    """The clock of the node of replicas with index 0; all others are as much off in the other direction."""

    SLOW = "slow"
    """All answers of the API server."""

    ANSWER = "answer"
    """The answer to one write."""

    LATE = "late"
    """All events of a stream."""

    TWICE = "twice"
    """All events of a stream come again."""

    UNSENT = "unsent"
    """The operator is killed before one of its writes takes effect, which is also after the answer to the last."""

    UNANSWERED = "unanswered"
    """The operator is killed when one of its writes has taken effect, before its answer."""


@dataclass(frozen=True)
class Plan:
    """One disturbance; as text ``ttl:leader::4:7200``. ``at`` is an event or a write, counted from 1."""

    story: str
    kind: Kind
    stream: str = ""
    at: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.story}:{self.kind}:{self.stream}:{self.at}:{self.seconds:g}"

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The plan of that name. Raises ValueError."""
        story, kind, stream, at, seconds = text.split(":")
        return cls(story, Kind(kind), stream, int(at), float(seconds))

    @property
    def delay(self) -> float | None:
        """How much later the end may come; None where that is not known, since every step takes longer."""
        if self.kind is Kind.ANSWER:
            return self.seconds
        return None if self.kind in (Kind.SLOW, Kind.LATE) else 0.0


def plans(story: str, alive: Outcome) -> list[Plan]:
    """All plans for a story that had these events and writes."""
    return [
        *(Plan(story, kind, seconds=ahead) for kind in (Kind.OPERATOR, Kind.NODES, Kind.NODE) for ahead in HOURS),
        *(
            Plan(story, Kind.LEADER, at=event, seconds=ahead)
            for event in range(1, alive.events["jobs"] + 1)
            for ahead in HOURS
        ),
        *(Plan(story, Kind.SLOW, seconds=seconds) for seconds in (0.5, 2.0, 5.0)),
        *(
            Plan(story, Kind.ANSWER, at=write, seconds=seconds)
            for write in range(1, alive.writes + 1)
            for seconds in (3.0, 40.0)
        ),
        *(Plan(story, Kind.LATE, stream=stream, seconds=s) for stream in STREAMS for s in (0.5, 5.0, 40.0)),
        *(Plan(story, Kind.TWICE, stream=stream) for stream in STREAMS),
        *(
            Plan(story, kind, at=write)
            for write in range(1, alive.writes + 1)
            for kind in (Kind.UNSENT, Kind.UNANSWERED)
        ),
    ]


def run(story: str, plan: Plan | None = None) -> Outcome:
    """One run of a story, disturbed as planned. Raises Stuck where it does not come to an end."""
    return play(story, partial(_disturb, plan=plan), seed=str(plan))


def differences(plan: Plan, alive: Outcome) -> list[str]:
    """Carry out a plan: what was wrong."""
    try:
        outcome = run(plan.story, plan)
    except AssertionError as error:
        return [str(error)]
    wrong = [*alive.end.differences(outcome.end, of=PARTS), *outcome.faults]
    off = outcome.seconds - alive.seconds
    if plan.delay is not None and not -PUNCTUAL_SECONDS < off < plan.delay + PUNCTUAL_SECONDS:
        wrong.append(f"the end came after {outcome.seconds:.0f} s, undisturbed after {alive.seconds:.0f} s")
    return wrong


def _disturb(cluster: ModelCluster, plan: Plan | None) -> None:
    if plan is None:
        return
    match plan.kind:
        case Kind.OPERATOR:
            cluster.operator_clock = plan.seconds
        case Kind.LEADER:
            cluster.api.on_line.append(_Succession(cluster, plan))
        case Kind.NODES:
            cluster.node_clocks = {"": plan.seconds}
        case Kind.NODE:
            first = {f"{role}-0": plan.seconds for role in ("chief", "worker", "ps")}
            cluster.node_clocks = {**first, "": -plan.seconds}
        case Kind.SLOW:
            cluster.api.latency = plan.seconds
        case Kind.ANSWER:
            cluster.api.late_answers = {plan.at: plan.seconds}
        case Kind.LATE:
            cluster.api.delays = dict.fromkeys(plurals_of(cluster, plan.stream), plan.seconds)
        case Kind.TWICE:
            cluster.api.twice = set(plurals_of(cluster, plan.stream))
        case Kind.UNSENT | Kind.UNANSWERED:
            cluster.api.on_write = _Killing(cluster, plan)


class _Killing:
    """The operator dies at a write."""

    def __init__(self, cluster: ModelCluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan

    def __call__(self, number: int, done: bool) -> bool:
        dies = number == self._plan.at and done == (self._plan.kind is Kind.UNANSWERED)
        if dies:
            self._cluster.meanwhile(self._cluster.restart_operator())
        return dies


class _Succession:
    """Another operator takes over."""

    def __init__(self, cluster: ModelCluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._events = 0

    def __call__(self, line: Line) -> None:
        self._events += line.plural == self._cluster.jobs.plural
        if line.plural == self._cluster.jobs.plural and self._events == self._plan.at:
            self._cluster.operator_clock = self._plan.seconds
            self._cluster.meanwhile(self._cluster.restart_operator())
