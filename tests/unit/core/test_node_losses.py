"""Nodes that lose the pods of a job again and again, and pods whose weights are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import job, pod
from dtj.api.json import dig
from dtj.api.names import Reason
from dtj.api.node_losses import MAX_NODES, Corrupt, NodeLosses
from dtj.api.status import JobStatus, Progress
from dtj.core import node_losses
from dtj.core.actions import Emit, PatchStatus
from dtj.core.observed import Phase
from dtj.core.pod_failure import of_node
from world import World, live, running

ALONE: Any = {"strategy": "ParameterServer", "roles": {"chief": 1, "worker": 2, "ps": 1}}
"""A worker of it comes back alone."""

WRONG: Any = {"workers": ["worker-1"], "replicas": [1], "step": 300, "variable": "dense/kernel"}


def breaks(world: World, replica: str, node: str = "gpu-7") -> None:
    """The runtime of a pod's node is reset; the operator does what that asks for, and the next pods run."""
    name = max(name for name in live(world) if f"{replica}-" in f"{name}-" and not world.pods[name].failed)
    short = name.removeprefix(f"{world.job.name}-")
    world.pods[name] = replace(world.pods[name], node=node)
    world.sees(short, Phase.FAILED, exit_code=255, reason="Unknown")
    world.finish_deletions()
    world.start()
    world.advance(120)


def preferences(world: World, name: str) -> Any:
    affinity = dig(world.manifests[name], "spec", "affinity", "nodeAffinity")
    return affinity and dig(affinity, "preferredDuringSchedulingIgnoredDuringExecution")


def avoiding(*nodes: str) -> dict[str, Any]:
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return {"weight": 100, "preference": {"matchFields": fields}}


def told(world: World, reason: Reason) -> list[str]:
    return [event.message for event in world.events if event.reason is reason]


class TestTheSameNode:
    @pytest.mark.parametrize("arguments", [{}, ALONE], ids=["all start again", "one comes back alone"])
    def test_pods_avoid_it_after_two_losses(self, arguments: Any) -> None:
        world = running(**arguments)
        breaks(world, "worker-1")
        assert preferences(world, "digits-worker-1-r1") is None
        assert told(world, Reason.NODE_AVOIDED) == []
        breaks(world, "worker-1")
        assert preferences(world, "digits-worker-1-r2") == [avoiding("gpu-7")]
        (event,) = (event for event in world.events if event.reason is Reason.NODE_AVOIDED)
        assert event == Emit(
            "Warning",
            Reason.NODE_AVOIDED,
            "node gpu-7 lost this job 2 times: its pods avoid it until 04:06 UTC",
        )

    def test_they_do_so_for_an_hour(self) -> None:
        world = running(**ALONE)
        for _ in range(2):
            breaks(world, "worker-1")
        world.advance(3600)
        breaks(world, "worker-0", node="gpu-8")
        assert preferences(world, "digits-worker-0-r1") is None
        assert [each.node for each in world.job.status.node_losses] == ["gpu-8"]

    def test_a_third_loss_is_no_second_event(self) -> None:
        world = running(**ALONE)
        for replica in ("worker-1", "worker-1", "worker-0"):
            breaks(world, replica)
        assert [each.count for each in world.job.status.node_losses] == [3]
        assert len(told(world, Reason.NODE_AVOIDED)) == 1

    def test_two_losses_of_two_nodes_are_no_reason(self) -> None:
        world = running(**ALONE)
        breaks(world, "worker-1", node="gpu-7")
        breaks(world, "worker-1", node="gpu-8")
        assert preferences(world, "digits-worker-1-r2") is None

    def test_pods_that_are_lost_together_are_one_loss(self) -> None:
        world = running(**ALONE)
        for name in ("worker-0", "worker-1"):
            world.pods[f"digits-{name}"] = replace(world.pods[f"digits-{name}"], node="gpu-7")
            world.sees(name, Phase.FAILED, exit_code=255, reason="Unknown")
        assert [each.count for each in world.job.status.node_losses] == [1]

    def test_a_loss_is_recorded_in_the_write_of_its_restart(self) -> None:
        world, whole = running(**ALONE), running(**ALONE)
        worker = world.pods["digits-worker-1"]
        world.sees("worker-1", Phase.FAILED, exit_code=255, reason="Unknown")
        whole.pods["digits-worker-1"] = replace(worker, node="")
        whole.sees("worker-1", Phase.FAILED, exit_code=255, reason="Unknown")
        assert world.job.status.node_losses
        assert not whole.job.status.node_losses
        assert len(world.taken(PatchStatus)) == len(whole.taken(PatchStatus))

    def test_it_is_recorded_while_its_restart_waits(self) -> None:
        """The pod may be deleted until then."""
        world = World(job()).settle()
        for name, node in (("worker-1", "gpu-7"), ("worker-1-r1", "gpu-8")):
            world.pods[f"digits-{name}"] = replace(world.pods[f"digits-{name}"], node=node)
            world.sees(name, Phase.FAILED, exit_code=255, reason="Unknown")
        assert world.job.status.pending_restart is not None
        world.remove("worker-1-r1")
        world.wait(10)
        assert world.job.status.attempt == 3
        assert [(each.node, each.count) for each in world.job.status.node_losses] == [("gpu-7", 1), ("gpu-8", 1)]

    def test_an_operator_that_restarts_knows_it(self) -> None:
        world = running(**ALONE)
        breaks(world, "worker-1")
        breaks(world, "worker-1")
        world.operator_restarts()
        world.sees("worker-0", Phase.FAILED, exit_code=1)
        world.wait(61)
        assert preferences(world, "digits-worker-0-r1") == [avoiding("gpu-7")]

    def test_what_the_template_prefers_stays(self) -> None:
        own = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
        affinity = {
            "podAffinity": {},
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [own]},
        }
        template = {"spec": {"affinity": affinity, "containers": [{"name": "trainer", "image": "example/trainer:1"}]}}
        world = running(template=template, **ALONE)
        breaks(world, "worker-1")
        breaks(world, "worker-1")
        assert preferences(world, "digits-worker-1-r2") == [own, avoiding("gpu-7")]
        assert dig(world.manifests["digits-worker-1-r2"], "spec", "affinity", "podAffinity") == {}
        assert preferences(world, "digits-worker-1-r1") == [own]


class TestWhatCounts:
    @pytest.mark.parametrize(
        ("lost", "counts"),
        [
            ({"reason": "UnexpectedAdmissionError"}, True),
            ({"reason": "OutOfnvidia.com/gpu"}, True),
            ({"reason": "Evicted", "message": "The node was low on resource: memory."}, False),
            ({"reason": "Preempting"}, False),
            ({"reason": "Terminated"}, False),
            ({"reason": "UnexpectedAdmissionError", "disrupted": True}, False),
            ({"disrupted": True, "silent": True}, True),
        ],
        ids=lambda value: " ".join(map(str, value)) if isinstance(value, dict) else None,
    )
    def test_of_failed_pods(self, lost: dict[str, Any], counts: bool) -> None:
        assert of_node(replace(pod(job(), "worker-0", phase=Phase.FAILED), **lost)) is counts

    @pytest.mark.parametrize(("silent", "counts"), [(False, False), (True, True)])
    def test_of_pods_that_are_asked_to_go(self, silent: bool, counts: bool) -> None:
        """A drain asks pods of a node that answers."""
        assert of_node(replace(pod(job(), "worker-0", terminating=True), silent=silent)) is counts

    @pytest.mark.parametrize(
        ("code", "reason"), [(1, "Error"), (139, "Error"), (137, "OOMKilled"), (255, "Error"), (75, "Error")]
    )
    def test_an_end_of_the_program_does_not(self, code: int, reason: str) -> None:
        world = running(**ALONE)
        world.sees("worker-1", Phase.FAILED, exit_code=code, reason=reason)
        assert world.job.status.node_losses == ()


class TestTheRecord:
    def test_it_is_bounded(self) -> None:
        world, status = running(), JobStatus()
        for number in range(MAX_NODES + 4):
            status = node_losses.recorded(status, {f"node-{number:02}"}, world.now)
        assert [each.node for each in status.node_losses] == [f"node-{number:02}" for number in range(4, 20)]

    @pytest.mark.parametrize("time", ["", "soon", "2999-01-01T00:00:00Z"])
    def test_a_time_that_cannot_be_counts_for_nothing(self, time: str) -> None:
        status = JobStatus(node_losses=(NodeLosses(node="gpu-7", count=9, last_time=time),))
        assert node_losses.avoided(status, running().now) == {}

    def test_an_entry_that_cannot_be_read_is_left_out(self) -> None:
        good = {"node": "gpu-7", "count": 2, "lastTime": "2026-01-02T03:04:05Z"}
        read = JobStatus.from_object({"nodeLosses": [good, {"node": 7}, {**good, "node": "a b"}, "x", {"count": -1}]})
        assert read.to_object() == {"nodeLosses": [good]}


class TestWrongWeights:
    def test_an_event_names_pod_node_step_and_variable(self) -> None:
        world = _on_gpu_7(running())
        world.hears("worker-0", step=300, corrupt=WRONG)
        assert told(world, Reason.REPLICAS_DIFFER) == [
            "worker-1 (pod digits-worker-1) has wrong weights at step 300 in dense/kernel; look at node gpu-7"
        ]
        assert world.job.status.progress is not None
        wrong = Corrupt(workers=("worker-1",), step=300, attempt=1, variable="dense/kernel")
        assert world.job.status.progress.corrupt == wrong

    def test_a_node_that_is_always_wrong_is_found_at_the_same_step_after_each_start(self) -> None:
        world = _on_gpu_7(running())
        world.hears("worker-0", step=300, corrupt=WRONG | {"start": 1})
        world.hears("worker-0", step=300, corrupt=WRONG | {"start": 1})
        assert len(told(world, Reason.REPLICAS_DIFFER)) == 1
        world.advance(120)
        world.hears("worker-0", step=300, corrupt=WRONG | {"start": 2})
        assert len(told(world, Reason.REPLICAS_DIFFER)) == 2
        assert [each.count for each in world.job.status.node_losses] == [2]

    def test_a_node_that_is_wrong_at_the_same_step_in_each_attempt_counts_each_time(self) -> None:
        world = _on_gpu_7(running())
        words = 'replicas differ\n{"corrupt": {"workers": ["worker-1"], "step": 300, "variable": "dense/kernel"}}'
        for suffix in ("", "-r1"):
            name = f"digits-worker-1{suffix}"
            world.pods[name] = replace(world.pods[name], node="gpu-7")
            for name in ("worker-0", "worker-1"):
                world.set_pod(name + suffix, Phase.FAILED, exit_code=75, message=words)
            world.settle()
            world.advance(60)
            world.settle_deletions()
            world.run_all()
            world.settle()
        assert [(each.node, each.count) for each in world.job.status.node_losses] == [("gpu-7", 2)]

    def test_it_is_told_once_for_each_step(self) -> None:
        world = _on_gpu_7(running())
        for step in (300, 310, 320):
            world.advance(20)
            world.hears("worker-0", step=step, corrupt=WRONG)
        world.operator_restarts()
        world.hears("worker-0", step=330, corrupt=WRONG)
        world.hears("worker-0", step=340)
        assert len(told(world, Reason.REPLICAS_DIFFER)) == 1
        assert [each.count for each in world.job.status.node_losses] == [1]
        world.advance(60)
        world.hears("worker-0", step=400, corrupt=WRONG | {"step": 400})
        assert len(told(world, Reason.REPLICAS_DIFFER)) == 2

    def test_its_node_is_avoided_after_another_loss(self) -> None:
        world = _on_gpu_7(running())
        world.hears("worker-0", step=300, corrupt=WRONG)
        world.advance(120)
        breaks(world, "worker-1")
        assert preferences(world, "digits-worker-1-r1") == [avoiding("gpu-7")]

    def test_where_nobody_knows_who_is_wrong_no_node_is(self) -> None:
        world = running()
        world.hears("worker-0", step=300, corrupt=WRONG | {"workers": ["worker-0", "worker-1"]})
        assert world.job.status.node_losses == ()
        assert told(world, Reason.REPLICAS_DIFFER) == [
            "the weights of worker-0, worker-1 differ at step 300 in dense/kernel; nobody knows which of them are right"
        ]

    def test_a_pod_that_ends_may_tell_of_it(self) -> None:
        world = _on_gpu_7(running())
        words = 'replicas differ\n{"corrupt": {"workers": ["worker-1"], "step": 300, "variable": "dense/kernel"}}'
        for name in ("worker-0", "worker-1"):
            world.set_pod(name, Phase.FAILED, exit_code=75, message=words)
        world.settle()
        assert len(told(world, Reason.REPLICAS_DIFFER)) == 1
        assert [each.node for each in world.job.status.node_losses] == ["gpu-7"]

    def test_the_only_pod_of_a_job_is_named_with_its_node(self) -> None:
        world = running(strategy="Mirrored", roles={"worker": 1})
        world.pods["digits-worker-0"] = replace(world.pods["digits-worker-0"], node="gpu-7")
        words = 'replicas differ\n{"corrupt": {"replicas": [0, 1], "workers": ["worker-0"], "step": 300}}'
        world.sees("worker-0", Phase.FAILED, exit_code=75, message=words)
        assert told(world, Reason.REPLICAS_DIFFER) == [
            "worker-0 (pod digits-worker-0) has wrong weights at step 300; look at node gpu-7"
        ]
        assert [each.node for each in world.job.status.node_losses] == ["gpu-7"]
        assert told(world, Reason.REPLICA_RESTARTED) == []
        world.advance(60)
        world.settle()
        assert told(world, Reason.REPLICA_RESTARTED) == [
            "worker-0 (pod digits-worker-0) ended because replicas differ (on node gpu-7); it starts again alone"
        ]

    @pytest.mark.parametrize(
        "garbage",
        [
            None,
            [],
            "x",
            {},
            {"workers": ["worker-1"]},
            {"step": 3},
            {"workers": "worker-1", "step": 3},
            {"workers": ["worker-1"], "step": -1},
            {"workers": ["worker-1" * 99], "step": 3},
        ],
    )
    def test_garbage_is_nothing(self, garbage: object) -> None:
        world = running()
        world.hears("worker-0", step=300, corrupt=garbage)
        assert told(world, Reason.REPLICAS_DIFFER) == []
        assert world.job.status.node_losses == ()

    def test_of_many_suspects_and_of_a_long_name_the_beginning_is_kept(self) -> None:
        corrupt = {"workers": [f"worker-{index}" for index in range(999)], "step": 3, "variable": "v" * 999}
        read = Progress.from_object({"corrupt": corrupt})
        assert read is not None
        assert read.corrupt is not None
        assert (len(read.corrupt.workers), len(read.corrupt.variable)) == (64, 256)


def _on_gpu_7(world: World) -> World:
    world.pods["digits-worker-1"] = replace(world.pods["digits-worker-1"], node="gpu-7")
    return world
