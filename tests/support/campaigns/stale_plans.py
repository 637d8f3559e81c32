"""Plans of what an operator is shown late, never, or out of its order, after the patterns of Sieve (OSDI'22).

Each story is run once undisturbed, which counts the events, and then once for each plan. From one event on, the watch
of the jobs, of the pods, or all watches stand still (``lag``); at the end of that, the events in between may be lost,
so that only their result is seen (``skip``), or the operator may have been restarted before a view that was over
(``travel``). For jobs there are two more plans: a list whose answer is late (``list``), and kopf, which handles the
events of each UID in a task of its own (``reorder``).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from dtj.api.json import dig
from dtj.engine.expectations import TIME_LIMIT
from dtj.kube.gateway import EVENTS, PODS
from log_lines import log_lines
from support.campaigns.model_cluster import End, ModelCluster
from support.campaigns.tfjob_stories import EVERY_STORY, cluster_of
from support.fake_gateway import Line
from support.virtual_time import VirtualTimeLoop, loop_time


class Mode(StrEnum):
    """What happens to the events; see the module."""

    LAG = "lag"
    SKIP = "skip"
    TRAVEL = "travel"
    LIST = "list"
    REORDER = "reorder"


STREAMS = ("jobs", "pods", "all")
"""Whose watch it is; ``all`` are those of Services, claims and gangs as well."""

BEHIND = {1: 3.0, 3: 10.0, 8: 45.0}
"""By how many events a watch is behind at most, and for how many seconds at most."""

STREAMS_OF = {Mode.LIST: ("jobs",), Mode.REORDER: ("jobs",), Mode.TRAVEL: ("jobs", "all")}
"""The streams of modes that do not have all of them.

Pods alone are never older than the jobs after a restart: lists are consistent reads, and an operator plans nothing
before it has listed both.
"""

DRAINED = (
    *("drain", "members-change", "a-spare-takes-over", "workers-of-servers-come-and-go", "volcano"),
    *("chief-alone-until-a-server-is-lost", "tfjob-comes-back-alone", "tfjob-in-a-gang"),
)
"""Stories in which another client deletes pods. They are not run with ``travel``.

To an operator whose view is from before such a pod was there it is yet to be created, and nothing that it writes can
tell it otherwise. Consistent reads keep that from happening; no list of ours asks for less.
"""


@dataclass(frozen=True)
class Plan:
    """One disturbance; as text ``suspend-and-resume:lag:pods:7:3``, for the seventh event and three behind."""

    story: str
    mode: Mode
    stream: str
    event: int
    behind: int

    def __str__(self) -> str:
        return f"{self.story}:{self.mode}:{self.stream}:{self.event}:{self.behind}"

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The plan of that name. Raises ValueError."""
        story, mode, stream, event, behind = text.split(":")
        return cls(story, Mode(mode), stream, int(event), int(behind))

    @property
    def seconds(self) -> float:
        """For how long the disturbance lasts at most."""
        return BEHIND[self.behind]


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    end: End
    events: dict[str, int]
    """How many events each stream has had."""

    writes: int
    seconds: float
    """How long it took until the story's end, in virtual time."""

    faults: tuple[str, ...]
    """What must never be: errors that were logged, counters that fell."""

    unseen: bool = False
    """Whether an object came and went and the operator, which had made it, was shown neither."""


def plans(story: str, alive: Outcome) -> list[Plan]:
    """All plans for a story that had these events."""
    return [
        Plan(story, mode, stream, event, behind)
        for mode in Mode
        if mode is not Mode.TRAVEL or story not in DRAINED
        for stream in STREAMS_OF.get(mode, STREAMS)
        for event in range(1, alive.events[stream] + 1)
        for behind in BEHIND
    ]


def run(story: str, plan: Plan | None = None) -> Outcome:
    """One run of a story, disturbed as planned. Raises Stuck where it does not come to an end."""
    disturbances: list[Disturbance] = []

    def disturb(cluster: ModelCluster) -> None:
        if plan is not None:
            disturbances.append(Disturbance(cluster, plan))

    outcome = play(story, disturb, seed=str(plan))
    return replace(outcome, unseen=any(disturbance.hid_a_whole_life for disturbance in disturbances))


def play(story: str, disturb: Callable[[ModelCluster], None], *, seed: str) -> Outcome:
    """What becomes of a story in a cluster that is disturbed; it is the same whenever the seed is."""
    random.seed(seed)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_play(story, disturb))


def differences(plan: Plan, alive: Outcome) -> list[str]:
    """Carry out a plan: what was wrong."""
    try:
        outcome = run(plan.story, plan)
    except AssertionError as error:
        return [str(error)]
    if plan.mode is Mode.TRAVEL:
        wrong = alive.end.without_evidence().differences(outcome.end.without_evidence(), of=_PARTS_TRAVELLED)
    else:
        wrong = alive.end.differences(outcome.end, of=PARTS)
    wrong += outcome.faults
    travelled = plan.mode is Mode.TRAVEL  # to such an operator a job that is gone is there, and its pods are not
    if outcome.end.orphans > MAX_ORPHANS and not travelled:
        wrong.append(f"{outcome.end.orphans} objects were created for a job that was gone")
    late = outcome.seconds - alive.seconds - plan.seconds
    if late > MAX_DELAY_SECONDS + (TIME_LIMIT if outcome.unseen else 0.0):
        wrong.append(f"the end came {late:.0f} s late, beside the {plan.seconds:.0f} s of the disturbance")
    if outcome.writes > 2 * alive.writes + 20 and not travelled:
        wrong.append(f"{outcome.writes} writes, but undisturbed {alive.writes}")
    return wrong


MAX_DELAY_SECONDS = 20.0

LISTED_SECONDS = 2.0
"""So long after a watch was lost all is listed."""


MAX_ORPHANS = 4
"""Objects that are created for a job which is gone, before the operator is shown that: garbage is collected."""

PARTS = ("status", "conditions", "objects", "created", "deleted", "torn_out")
_PARTS_TRAVELLED = ("status", "conditions", "objects", "torn_out")
"""Who acts on a view that is over may create a pod that is not wanted any more, and delete it when it sees so; it may
also delete one that has ended meanwhile, whose log alone is lost."""


async def _play(story: str, disturb: Callable[[ModelCluster], None]) -> Outcome:
    with log_lines("dtj", logging.ERROR) as defects:  # neither what it is shown nor being killed is a reason for any
        cluster = cluster_of(story)
        disturb(cluster)
        cluster.start_operator()
        await EVERY_STORY[story](cluster)
        seconds = loop_time()
        await cluster.quiet()
        await cluster.close()
    return Outcome(
        end=cluster.end(),
        events={stream: len(cluster.api.lines(plurals_of(cluster, stream))) for stream in STREAMS},
        writes=len([call for call in cluster.api.writes() if EVENTS.plural not in call]),
        seconds=seconds,
        faults=(*defects, *_fallen(cluster)),
    )


def plurals_of(cluster: ModelCluster, stream: str) -> tuple[str, ...]:
    """The kinds of a stream."""
    return {"jobs": (cluster.jobs.plural,), "pods": (PODS.plural,)}.get(stream) or cluster.plurals


def _fallen(cluster: ModelCluster) -> list[str]:
    """Counters of a job that were higher before."""
    highest: dict[tuple[object, str], int] = {}
    found = []
    at = ("status", *filter(None, [cluster.form.recorded_in]))
    for line in cluster.api.history(cluster.jobs):
        uid = dig(line.body, "metadata", "uid")
        counters = {
            "attempt": dig(line.body, *at, "attempt"),
            "total": dig(line.body, *at, "restarts", "total"),
        }
        for name, value in counters.items():
            number = value if isinstance(value, int) else 0
            if number < highest.get((uid, name), 0):
                found.append(f"{name} fell from {highest[uid, name]} to {number}")
            highest[uid, name] = number
    return found


class Disturbance:
    """Waits for its event, and has the plan's own thing happen."""

    def __init__(self, cluster: ModelCluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._seen: list[int] = []
        self._over = False
        self._release_list: Callable[[], None] = lambda: None
        self._hidden: list[Line] = []
        self._shown_from = math.inf
        cluster.api.on_line.append(self._on_line)

    @property
    def hid_a_whole_life(self) -> bool:
        """Whether an object came and went while nothing was shown of it, and that was never made up for."""
        came, went = ({_uid(line) for line in self._hidden if line.type == kind} for kind in ("ADDED", "DELETED"))
        return self._plan.mode in (Mode.SKIP, Mode.TRAVEL) and not came.isdisjoint(went)

    def _on_line(self, line: Line) -> None:
        if line.plural not in plurals_of(self._cluster, self._plan.stream):
            return
        self._seen.append(line.version)
        if len(self._seen) >= self._plan.event and loop_time() < self._shown_from:
            self._hidden.append(line)
        if self._over:
            return
        if len(self._seen) == self._plan.event:
            self._begin(line.version - 1)
        elif len(self._seen) > self._plan.event + self._plan.behind:
            self._finish()

    def _begin(self, version: int) -> None:
        plan, api, operator = self._plan, self._cluster.api, self._cluster.operator
        assert operator is not None
        asyncio.get_running_loop().call_later(plan.seconds, self._finish)
        match plan.mode:
            case Mode.LAG | Mode.SKIP:
                api.hold(self._held, at=version)
            case Mode.TRAVEL:
                earlier = self._seen[-plan.behind - 1] if len(self._seen) > plan.behind else 0
                api.hold(self._held, at=earlier, lists=True)
                self._cluster.meanwhile(self._cluster.restart_operator())
            case Mode.LIST:
                self._release_list = operator.list_late()
            case Mode.REORDER:
                api.hold(self._held, at=version)
                operator.reorders = True

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        self._shown_from = loop_time() + LISTED_SECONDS
        if self._plan.mode is Mode.LIST:
            self._release_list()
        else:
            self._cluster.api.release(self._held, lost=self._plan.mode is Mode.SKIP)

    @property
    def _held(self) -> Sequence[str]:
        return plurals_of(self._cluster, self._plan.stream)


def _uid(line: Line) -> object:
    return dig(line.body, "metadata", "uid")
