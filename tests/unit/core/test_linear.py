"""Planning is linear in pods. While it plans, the operator does nothing else, not even renew its lease: a plan whose
cost grew with the square of the pods would end the leader, and each one after it.

The cost of a plan is the number of lines of Python that it runs, which no other work on the machine changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

import pytest

import world as model
from builders import edited, ended, job
from dtj.api.names import Reason
from dtj.core.actions import Plan
from dtj.core.observed import Blocker, Observed, Phase, Pod, Straggler
from dtj.core.planner import plan
from support.elastic_world import ElasticWorld
from support.gang_worlds import QUEUED, admit, evict, queued
from support.played_tfjobs import tfjob, world_of
from support.traced import lines_of
from world import GRACE, World, running

FEW: Final = 16
"""Each life is lived with so many workers, with twice and with three times as many. Of fewer, the addresses would be in
each pod."""

LONG: Final = 2000
"""Lines from which on a plan is compared: most of a shorter one does not depend on pods."""

TOLERANCE: Final = 0.01
"""The third part of the pods may cost so much more than the second one, of the whole."""


def parameter_server(workers: int) -> World:
    roles = {"chief": 1, "ps": 2, "worker": workers}
    return World(job(strategy="ParameterServer", roles=roles, runPolicy={"backoffLimit": 1000}))


def alone(workers: int) -> World:
    return World(job(roles={"worker": workers}, runPolicy={"restartScope": "Pod", "backoffLimit": 1000}))


def together(workers: int) -> World:
    return World(job(roles={"worker": workers}))


def of_kubeflow(workers: int) -> World:
    return world_of(tfjob({"PS": 2, "Worker": workers}, restarts="OnFailure", runPolicy={"backoffLimit": 1000}))


def elastic(workers: int, *, spares: bool = False) -> World:
    bounds: dict[str, object] = {"minReplicas": 1, "maxReplicas": workers}
    bounds |= {"spares": workers, "onStraggler": "Replace"} if spares else {}
    return ElasticWorld(job(roles={"worker": workers}, elastic=bounds))


def of_kueue(workers: int) -> World:
    story = queued(roles={"worker": workers}, runPolicy={**QUEUED, "restartScope": "Pod"})
    admit(story, workers=workers)
    return story


EVICTED: Final[dict[str, Any]] = {
    "termination": ended(137, after_seconds=60),
    "reason": "Evicted",
    "message": "The node was low on resource: memory.",
}
GAVE_UP: Final[dict[str, Any]] = {"termination": ended(75, after_seconds=60)}
BROKE: Final[dict[str, Any]] = {"termination": ended(1, after_seconds=60, message="ValueError: shapes do not match")}

Change = Callable[[Pod], Pod]


def ends(**how: Any) -> Change:
    """What becomes of a pod that ends so; one that has ended stays as it is."""
    return lambda pod: pod if pod.main_container_ended else replace(pod, phase=Phase.FAILED, ready=False, **how)


def each_worker(story: World, change: Change, *, every: int = 1) -> None:
    for name, pod in story.pods.items():
        if pod.role == "worker" and pod.index % every == 0:
            story.pods[name] = change(pod)


def lost(story: World, **how: Any) -> None:
    """All workers end and come back, twice; then every second one of them."""
    running(story)
    for every in (1, 1, 2):
        story.advance(60)
        each_worker(story, ends(**how), every=every)
        story.wait(10)
        story.wait(61)
        story.start()


def deleted(story: World) -> None:
    """All workers are deleted, on nodes that do not answer."""
    running(story)
    each_worker(story, asked_to_stop(story))
    for seconds in (0, 5, 40, 60):
        story.wait(seconds)
    story.settle_deletions()
    story.start()


def asked_to_stop(story: World) -> Change:
    return lambda pod: replace(
        pod, terminating=True, ready=False, deletion_requested_at=story.now, deletion_due=story.now + GRACE
    )


def gone(story: World) -> None:
    """All workers vanish without a trace, and then every second one."""
    running(story)
    for every in (1, 2):
        story.pods = {name: pod for name, pod in story.pods.items() if pod.role != "worker" or pod.index % every}
        story.settle()
        story.start()


def blocked(story: World) -> None:
    """No worker finds a node."""
    story.settle()
    each_worker(story, lambda pod: replace(pod, blocker=Blocker(Reason.UNSCHEDULABLE, "0/3 nodes are available")))
    story.wait(20)


def suspended(story: World) -> None:
    """The job is suspended, and goes on."""
    running(story)
    for suspend in (True, False):
        story.job = edited(story.job, suspend=suspend)
        story.settle_deletions()
    story.start()


def completed(story: World) -> None:
    """Every second worker completes, then all."""
    running(story)
    for every in (2, 1):
        each_worker(story, completes, every=every)
        story.wait(10)
    story.wait(3600)


def completes(pod: Pod) -> Pod:
    return replace(pod, phase=Phase.SUCCEEDED, ready=False, termination=ended(0, after_seconds=60))


def over(story: World) -> None:
    """The job succeeds, and its pods hang on nodes that do not answer."""
    running(story)
    first = "chief-0" if f"{story.job.name}-chief-0" in story.pods else "worker-0"
    story.sees(first, Phase.SUCCEEDED, exit_code=0)
    for seconds in (40, 60, 60):
        story.wait(seconds)


def status_lost(story: World) -> None:
    """The status does not know of the latest pods."""
    running(story)
    before = story.job.status
    each_worker(story, ends(**EVICTED))
    story.wait(70)
    story.job = replace(story.job, status=before)
    story.wait(301)


def trained(story: World) -> ElasticWorld:
    """All pods of an elastic job run, and can join."""
    assert isinstance(story, ElasticWorld)
    running(story)
    story.import_all()
    return story


def member_lost(story: World, **how: Any) -> None:
    """Every second worker of an elastic job is lost, and joins again."""
    story = trained(story)
    story.advance(60)
    each_worker(story, ends(**how), every=2)
    for seconds in (0, 31):
        story.wait(seconds)
    story.all_join()
    for seconds in (2, 2):
        story.wait(seconds)


def silent(story: World) -> None:
    """Nothing is heard of every second worker of an elastic job."""
    story = trained(story)
    each_worker(story, lambda pod: replace(pod, ready=False, silent=True), every=2)
    for seconds in (0, 31, 2):
        story.wait(seconds)


def slow(story: World) -> None:
    """Workers of an elastic job are slower than others."""
    story = trained(story)
    story.stragglers = tuple(Straggler(f"worker-{index}", 3.0) for index in range(8))
    for seconds in (0, 700):
        story.wait(seconds)


def preempted(story: World) -> None:
    """All workers of a job in a queue are lost, some complete, and Kueue takes its quota back."""
    running(story)
    workers = len(story.pods)
    each_worker(story, ends(**EVICTED))
    story.wait(10)
    story.start()
    each_worker(story, lambda pod: pod if pod.main_container_ended else completes(pod), every=2)
    story.settle()
    evict(story, "Preempted")
    admit(story, workers=workers)
    story.start()


ENDS: Final = {"evicted": EVICTED, "75": GAVE_UP, "1": BROKE}

LIVES: Final[dict[str, tuple[Callable[[int], World], Callable[[World], None]]]] = {
    **{f"ParameterServer: {how}": (parameter_server, partial(lost, **ends)) for how, ends in ENDS.items()},
    "restartScope Pod: evicted": (alone, partial(lost, **EVICTED)),
    "TFJob: 1": (of_kubeflow, partial(lost, **BROKE)),
    **{f"ParameterServer: {life.__name__}": (parameter_server, life) for life in (deleted, gone, over, status_lost)},
    **{f"TFJob: {life.__name__}": (of_kubeflow, life) for life in (suspended, completed, over)},
    "MultiWorkerMirrored: blocked": (together, blocked),
    "elastic: evicted": (elastic, partial(member_lost, **EVICTED)),
    "spares: evicted": (partial(elastic, spares=True), partial(member_lost, **EVICTED)),
    "elastic: silent": (elastic, silent),
    "spares: slow": (partial(elastic, spares=True), slow),
    "Kueue: preempted": (of_kueue, preempted),
}
"""How a job begins, and what happens to it."""


@pytest.mark.parametrize("life", LIVES)
def test_the_cost_of_each_plan_grows_with_the_pods_and_no_faster(life: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start, happens = LIVES[life]
    costs: list[list[tuple[int, str]]] = [[]]

    def counted(observed: Observed, now: datetime) -> Plan:
        lines, actions = lines_of(lambda: plan(observed, now))
        costs[-1].append((lines, ", ".join(dict.fromkeys(type(action).__name__ for action in actions))))
        return actions

    monkeypatch.setattr(model, "plan", counted)
    happens(start(4))  # patterns are compiled, and what is cached for ever is
    costs.clear()
    for times in (1, 2, 3):
        costs.append([])
        happens(start(times * FEW))
    assert max(lines for lines, _ in costs[-1]) > LONG
    for (few, _), (more, _), (most, actions) in zip(*costs, strict=True):
        assert most < LONG or (most - more) - (more - few) < TOLERANCE * most, actions
