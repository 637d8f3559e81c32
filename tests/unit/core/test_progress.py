"""How far a job is, and what happens when it stands still."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from builders import edited, job
from dtj.api.names import Reason
from dtj.api.status import Progress
from dtj.core.actions import PatchStatus
from dtj.core.observed import Phase, Straggler
from world import World, running


def _shown(world: World) -> Progress:
    """What the job's status says, which must say something."""
    assert world.job.status.progress is not None
    return world.job.status.progress


class TestInTheStatus:
    def test_it_is_what_worker_0_says(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.hears("worker-0", step=5, totalSteps=50, percent=10, metrics={"loss": "0.41"})
        shown = _shown(world)
        assert (shown.step, shown.total_steps, shown.metrics) == (5, 50, {"loss": "0.41"})
        assert shown.updated_at == "2026-01-02T03:04:15Z"

    @pytest.mark.parametrize("fabric", ["rdma/hca_shared_devices_a", "vpc.amazonaws.com/efa"])
    @pytest.mark.parametrize(
        ("transport", "slow"), [("NET/IB/GDRDMA, P2P", False), ("NET/Socket, P2P", True), ("P2P, SHM", False)]
    )
    def test_gradients_that_take_the_slow_way_although_the_pods_have_a_fast_one_are_warned_of(
        self, fabric: str, transport: str, slow: bool
    ) -> None:
        for resources in ({fabric: 1}, {}):
            container = {"name": "trainer", "image": "x", "resources": {"limits": resources}}
            world = World(job(roles={"worker": 2}, template={"spec": {"containers": [container]}}))
            world.settle()
            world.run_all()
            world.settle()
            world.advance(10)
            world.hears("worker-0", step=5, transport=transport)
            shown = _shown(world)
            assert shown.transport == transport
            assert (f"by NET/Socket, although the pods ask for {fabric}" in shown.warning) == bool(slow and resources)
            assert bool(shown.warning) == bool(slow and resources)

    def test_it_is_written_every_ten_seconds_at_most(self) -> None:
        world = running(seconds=0)
        before = len(world.taken(PatchStatus))
        for second in range(100):
            world.advance(1)
            world.hears("worker-0", step=second, examplesPerSecond=second * 1.5)
        assert 9 <= len(world.taken(PatchStatus)) - before <= 11

    def test_it_is_written_although_the_clock_was_set_back(self) -> None:
        world = running()
        world.hears("worker-0", step=1)
        world.advance(-3600)
        world.hears("worker-0", step=2)
        assert world.job.status.progress is not None
        assert world.job.status.progress.step == 2

    @pytest.mark.parametrize(
        ("reported", "text"),
        [({"step": 6, "percent": 24}, "24%"), ({"step": 1200}, "step 1200"), ({"phase": "Building"}, "building")],
    )
    def test_it_is_also_there_in_words_for_kubectl_get(self, reported: dict[str, object], text: str) -> None:
        world = running(seconds=0)
        world.report("worker-0", **reported)
        world.wait(10)
        assert _shown(world).text == text

    def test_of_a_completed_job_it_is_the_last_report_that_its_pod_left(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.hears("worker-0", step=122, totalSteps=225, percent=54, etaSeconds=4, metrics={"loss": "0.5"})
        last = {"phase": "Done", "step": 225, "totalSteps": 225, "percent": 100, "metrics": {"loss": "0.1"}}
        world.sees("worker-0", Phase.SUCCEEDED, message=json.dumps({"progress": last}))
        shown = _shown(world)
        assert (shown.text, shown.phase, shown.step, shown.percent) == ("done", "Done", 225, 100)
        assert (shown.eta_seconds, shown.metrics) == (None, {"loss": "0.1"})
        world.remove("worker-0")
        world.settle()
        assert world.job.status.progress == shown

    def test_of_a_completed_job_whose_pod_left_none_the_last_answer_has_no_estimates(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.hears("worker-0", step=122, totalSteps=225, percent=54, etaSeconds=4)
        world.sees("worker-0", Phase.SUCCEEDED)
        shown = _shown(world)
        assert (shown.text, shown.phase, shown.step) == ("done", "Done", 122)
        assert (shown.percent, shown.eta_seconds) == (None, None)

    def test_before_the_first_answer_it_is_what_the_pods_wait_for(self) -> None:
        world = World(job())

        def text() -> str | None:
            world.settle()
            return world.job.status.progress.text if world.job.status.progress is not None else None

        assert text() == "waiting for pods"
        world.run_all()
        assert text() == "no report yet"
        world.advance(10)
        world.report("worker-0", phase="Gate")
        assert text() == "waiting for peers"
        world.advance(10)
        world.report("worker-0", phase="Training", step=1)
        assert text() == "step 1"

    @pytest.mark.parametrize("ends", [True, False])
    def test_of_a_job_that_does_not_run_what_its_pods_waited_for_is_no_progress(self, ends: bool) -> None:
        world = World(job()).settle()
        if ends:
            world.set_pod("worker-0", Phase.FAILED, exit_code=1)
            world.job = edited(world.job, backoff_limit=0)
        else:
            world.job = edited(world.job, suspend=True)
        world.settle_deletions()
        assert world.job.status.state == ("Failed" if ends else "Suspended")
        assert world.job.status.progress is None

    def test_words_of_a_pods_own_reach_no_terminal(self) -> None:
        for phase, words in (("\x1b[31mred", "red"), ("\u202ered", "running")):
            shown = Progress.from_object({"phase": phase})
            assert shown is not None
            assert shown.in_words() == words

    @pytest.mark.parametrize(
        ("reported", "read"),
        [
            ({"step": -1, "totalSteps": 10}, Progress(total_steps=10)),
            ({"step": "many", "epoch": 2}, Progress(epoch=2)),
            ({"percent": 400, "step": 1}, Progress(step=1)),
            ({"step": 10**300, "examplesPerSecond": 1e300, "epoch": 2}, Progress(epoch=2)),
            ({"metrics": {"loss": "x" * 1000}, "step": 1}, Progress(step=1)),
            ({"metrics": {str(n): "1" for n in range(1000)}}, Progress(metrics={str(n): "1" for n in range(32)})),
            ({"phase": "x" * 1000, "step": 1}, Progress(step=1)),
            ({"updatedAt": "2099-01-01T00:00:00Z", "step": 1}, Progress(step=1)),
            ({"hello": "world"}, None),
            ([1, 2], None),
            ("step 5", None),
        ],
    )
    def test_of_a_pod_that_lies_what_makes_sense_is_read(self, reported: object, read: Progress | None) -> None:
        assert Progress.from_object(reported) == read


@pytest.mark.parametrize(
    ("reported", "shown"),
    [(0, 0), (0.0, 0), (0.04, 1), (0.9, 1), (1.4, 1), (1.5, 2), (2.5, 3), (12345.6, 12346), (7, 7), (-0.5, None)],
)
def test_the_speed_is_a_whole_number_and_only_a_training_that_stands_still_has_none(
    reported: object, shown: int | None
) -> None:
    progress = Progress.from_object({"step": 3, "examplesPerSecond": reported})
    assert progress is not None
    assert progress.examples_per_second == shown


class TestStragglersInTheStatus:
    def test_it_is_named_and_reported_once_with_its_node(self) -> None:
        world = World(job(roles={"worker": 3})).start()
        world.pods["digits-worker-1"] = replace(world.pods["digits-worker-1"], node="node-7")
        world.stragglers = (Straggler("worker-1", 2.25),)
        for step in range(3):
            world.advance(20)
            world.hears("worker-0", step=step)
        progress = _shown(world)
        assert progress.stragglers == ("worker-1",)
        (answer,) = (event for event in world.events if event.reason == Reason.STRAGGLING)
        assert answer.message == (
            "worker-1 is slower than the others: its steps take 2.2 times as long as the median; look at node node-7"
        )
        world.stragglers = ()
        world.wait(20)
        progress = _shown(world)
        assert progress.stragglers == ()
        assert world.pods["digits-worker-1"].phase is Phase.RUNNING

    def test_it_holds_what_is_accepted_unchecked_unless_that_is_too_much(self) -> None:
        assert Progress.from_object({"unchecked": ["centre"]}) == Progress(unchecked=("centre",))
        assert Progress.from_object({"step": 1, "unchecked": ["n"] * 9}) == Progress(step=1)

    def test_a_pod_cannot_name_others(self) -> None:
        assert Progress.from_object({"step": 1, "stragglers": ["worker-1"], "text": "99%"}) == Progress(step=1)
