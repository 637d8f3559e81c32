"""Plans of when an operator is killed: for each workload, each of its writes and each moment around it.

A workload is run once without a kill, which counts the writes, and then once for each plan, several at a time, each
in a namespace of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from support.api_proxy import ApiProxy, Call, Upstream
from support.loop_thread import LoopThread
from support.operator_process import USER, grant
from support.operator_runs import KillPoint, Moment, Operator, OperatorRuns, TaskOperator, WholeOperator
from support.restartable_cluster import End, RestartableCluster
from testbed import ControlPlane

Workload = Callable[[RestartableCluster], None]

LANES = 6
"""Plans at the same time: most of a plan is waiting."""


@dataclass(frozen=True)
class Plan:
    """When the operator is killed; as text ``suspend-and-resume:7:before``, with ``:process`` for a whole process."""

    workload: str
    write: int
    moment: Moment
    process: bool = False

    def __str__(self) -> str:
        return f"{self.workload}:{self.write}:{self.moment}" + (":process" if self.process else "")

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The plan of that name. Raises ValueError."""
        workload, write, moment, *rest = text.split(":")
        if rest not in ([], ["process"]):
            raise ValueError(f"{text!r} is no plan: <workload>:<write>:<moment>, with :process or without")
        return cls(workload, int(write), Moment(moment), bool(rest))


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    end: End
    writes: tuple[Call, ...]
    killed_at: str


@dataclass(frozen=True)
class Tried:
    """What came of some plans."""

    wrong: list[str]
    """A line for each plan after which something is not as it is without a kill."""

    unreached: list[Plan]
    """Plans whose run had fewer writes. A pod that the garbage collector takes before the operator sees the deletion
    of its job costs a status and an event, which the API server refuses."""


def plans(workload: str, writes: Sequence[Call]) -> list[Plan]:
    """All plans for a workload that made these writes; one of them kills a whole process in its midst.

    An operator that dies before a write reaches the API server and one that dies after the answer to the write before
    leave the same behind, unless both writes were on their way at once: only then both are tried.
    """
    whole = Plan(workload, (len(writes) + 1) // 2, Moment.BEFORE, process=True)
    chosen = [whole]
    for number, write in enumerate(writes, start=1):
        overlaps = any(write.at < earlier.over_at for earlier in writes[: number - 1])
        moments = Moment if number == 1 or overlaps else (Moment.BEFORE, Moment.AFTER)
        chosen += [Plan(workload, number, moment) for moment in moments]
    return chosen


class Stage:
    """Where plans are carried out: lanes, which are namespaces of one cluster, and one event loop for the operators."""

    def __init__(self, plane: ControlPlane, loop: LoopThread, directory: Path) -> None:
        self._plane = plane
        self._loop = loop
        self._directory = directory
        self._upstream = Upstream(plane.url, plane.tls_for(USER))
        self._lanes: SimpleQueue[str] = SimpleQueue()
        self._namespaces: list[str] = []

    def __enter__(self) -> Stage:
        for _ in range(LANES):
            namespace = self._plane.new_namespace("lane")
            grant(self._plane, namespace)
            self._namespaces.append(namespace)
            self._lanes.put(namespace)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._upstream.close())
        for namespace in self._namespaces:
            self._plane.delete_namespace(namespace)

    def run(self, workload: Workload, plan: Plan | None = None) -> Outcome:
        """One run, with the kill of ``plan`` or without one."""
        namespace = self._lanes.get()
        try:
            return self._run(workload, plan, namespace)
        finally:
            self._lanes.put(namespace)

    def run_all(self, workload: Workload, chosen: Iterable[Plan], *, expected: Outcome) -> Tried:
        """Carry out these plans, and compare how each run ends with the expected end."""
        with ThreadPoolExecutor(LANES) as pool:
            found = list(pool.map(lambda plan: self._try(workload, plan, expected), chosen))
        return Tried(
            wrong=[line for line in found if isinstance(line, str) and line],
            unreached=[plan for plan in found if isinstance(plan, Plan)],
        )

    def _try(self, workload: Workload, plan: Plan, expected: Outcome) -> str | Plan:
        """What went wrong, or nothing; the plan itself if all is right but the operator was never killed."""
        began = time.monotonic()
        try:
            outcome = self.run(workload, plan)
        except Exception as error:  # noqa: BLE001 - one plan must not keep the others from being tried
            return f"{plan}: {type(error).__name__} after {time.monotonic() - began:.0f} s: {error}"
        if wrong := "; ".join(expected.end.differences(outcome.end)):
            return f"{plan} (killed at {outcome.killed_at or 'no write'!r}): {wrong}"
        return "" if outcome.killed_at else plan

    def _run(self, workload: Workload, plan: Plan | None, namespace: str) -> Outcome:
        def make(proxy: ApiProxy) -> Operator:
            if plan is not None and plan.process:
                log = self._directory / f"{proxy.port}.log"
                return WholeOperator(proxy.kubeconfig(self._directory), namespace, log=log)
            return TaskOperator(proxy.url, namespace, authority=self._plane.authority)

        runs = OperatorRuns(
            self._upstream, make, kill_point=KillPoint(plan.write, plan.moment) if plan is not None else None
        )
        client = self._plane.lasting_api()
        world = RestartableCluster(self._plane, namespace, runs, client)
        world.clear()
        self._loop.run(runs.begin())
        try:
            workload(world)
            world.rest()
            return Outcome(world.end(), tuple(runs.writes), runs.killed_at)
        finally:
            self._loop.run(runs.end())
            world.clear()
            client.close()
