"""A gang can be complete whenever its pods start again, whatever its members went through before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import edited, job, spec_of
from dtj.api.spec import Gang
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.observed import CreationRefusal, GangApi, Phase
from dtj.core.replicas import replicas
from world import World

_JOBS = (
    ("ParameterServer", {"chief": 1, "worker": 2, "ps": 1}),
    ("MultiWorkerMirrored", {"worker": 2, "evaluator": 1}),
    ("OneDevice", {"worker": 1, "evaluator": 1}),
    ("MultiWorkerMirrored", {"worker": 2, "dispatcher": 1, "data-worker": 1}),
)
_EVENTS = ("is drained", "fails", "is drained before it is scheduled", "is refused by a quota")


def _settle(world: World) -> None:
    """All that is on its way happens; back-offs pass."""
    for _ in range(4):
        world.settle()
        world.finish_deletions()
        world.advance(61)


def _happens(world: World, event: str, replica: str) -> None:
    """Something to the latest pod of a replica, or to the whole job."""
    newest = max((pod for pod in world.pods.values() if f"{pod.role}-{pod.index}" == replica), key=lambda p: p.uid)
    name = newest.name.removeprefix(f"{world.job.name}-")
    if event == "is drained":
        world.take_away(name)
    elif event == "fails":
        world.set_pod(name, Phase.FAILED, exit_code=42)
    elif event == "is drained before it is scheduled":
        world.job = edited(world.job, suspend=True)
        _settle(world)
        world.job = edited(world.job, suspend=False)
        world.settle()
        world.take_away(max(n for n in world.pods if f"-{replica}" in n).removeprefix(f"{world.job.name}-"))
    else:
        world.loses(name)
        world.finish_deletions()
        world.refusal = CreationRefusal(newest.name, "Forbidden", "exceeded quota: pods=2", world.now)
        world.settle()
        world.finish_deletions()
        world.refusal = None


@settings(max_examples=150, deadline=None)
@given(data=st.data(), api=st.sampled_from([api for api in APIS if api.gang is not Gang.KUEUE]))
def test_whatever_its_members_went_through_a_gang_is_complete_again(data: st.DataObject, api: GangApi) -> None:
    strategy, roles = data.draw(st.sampled_from(_JOBS))
    policy = {"scheduling": {"gang": str(api.gang)}, "backoffLimit": 100}
    world = World(job(strategy=strategy, roles=roles, runPolicy=policy), installed=(api,))
    world.settle()
    world.run_all()
    names = [replica.hostname for replica in replicas(spec_of(world.job))]
    for event, replica in data.draw(
        st.lists(st.tuples(st.sampled_from(_EVENTS), st.sampled_from(names)), min_size=1, max_size=5)
    ):
        _settle(world)
        world.run_all()
        _happens(world, event, replica)
    _settle(world)
    world.run_all()
    world.settle()
    running = {f"{pod.role}-{pod.index}" for pod in world.pods.values() if pod.node and not pod.main_container_ended}
    assert running == set(names), f"{world.job.status.state}: {world.job.status.replica_statuses}"
