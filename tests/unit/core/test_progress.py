"""How far a job is, and what happens when it stands still."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

from builders import NOW, job, pod
from dtj.api.names import Condition, Reason
from dtj.api.spec import Role
from dtj.api.status import ConditionStatus, Progress
from dtj.core.actions import AskForStacks, PatchStatus
from dtj.core.observed import Phase
from dtj.core.platform import ClusterNetwork, Platform
from dtj.engine import progress
from dtj.engine.metrics import Metrics
from dtj.engine.queue import WorkQueue
from dtj.engine.stacks import StackRequests
from dtj.engine.state import ClusterState
from dtj.engine.stores import JobRecord, Labelled
from dtj.kube.informer import Change
from dtj.kube.records import Key
from support.virtual_time import virtual_time
from world import World, running

pytestmark = pytest.mark.unit


def failed(world: World) -> ConditionStatus:
    """How the job has failed, once its pods are gone."""
    world.settle()
    world.finish_deletions()
    world.settle()
    condition = world.job.status.condition(Condition.FAILED)
    assert condition is not None
    assert condition.status == "True"
    return condition


def stands_still(world: World, replica: str, **progress: object) -> None:
    """Two answers that show the same place, 61 s apart."""
    for seconds in (0, 61):
        world.advance(seconds)
        world.report(replica, **progress)
        world.settle()


def condition_of(world: World) -> tuple[str, str]:
    condition = world.job.status.condition(Condition.PROGRESS_STALLED)
    assert condition is not None
    return condition.status, condition.reason


class TestInTheStatus:
    def test_it_is_what_worker_0_says(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.report("worker-0", step=5, totalSteps=50, percent=10, metrics={"loss": "0.41"})
        world.settle()
        shown = world.job.status.progress
        assert shown is not None
        assert (shown.step, shown.total_steps, shown.metrics) == (5, 50, {"loss": "0.41"})
        assert shown.updated_at == "2026-01-02T03:04:15Z"

    def test_it_is_written_every_ten_seconds_at_most(self) -> None:
        world = running(seconds=0)
        before = len(world.taken(PatchStatus))
        for second in range(100):
            world.advance(1)
            world.report("worker-0", step=second, examplesPerSecond=second * 1.5)
            world.settle()
        assert 9 <= len(world.taken(PatchStatus)) - before <= 11

    def test_another_rate_alone_is_no_advance(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.report("worker-0", step=5, examplesPerSecond=100.0)
        world.settle()
        world.advance(10)
        world.report("worker-0", step=5, examplesPerSecond=50.0)
        world.settle()
        shown = world.job.status.progress
        assert shown is not None
        assert (shown.examples_per_second, shown.updated_at) == (50.0, "2026-01-02T03:04:15Z")

    @pytest.mark.parametrize(
        ("reported", "text"),
        [({"step": 6, "percent": 24}, "24%"), ({"step": 1200}, "step 1200"), ({"phase": "Building"}, "building")],
    )
    def test_it_is_also_there_in_words_for_kubectl_get(self, reported: dict[str, object], text: str) -> None:
        world = running(seconds=0)
        world.report("worker-0", **reported)
        world.advance(10)
        world.settle()
        shown = world.job.status.progress
        assert shown is not None
        assert shown.text == text

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
        world = World(job())
        world.settle()
        if ends:
            world.set_pod("worker-0", Phase.FAILED, exit_code=1)
            world.job = replace(world.job, spec=job(runPolicy={"backoffLimit": 0}).spec)
        else:
            world.job = replace(world.job, spec=job(runPolicy={"suspend": True}).spec, generation=2)
        world.settle()
        world.finish_deletions()
        world.settle()
        assert world.job.status.state == ("Failed" if ends else "Suspended")
        assert world.job.status.progress is None

    def test_words_of_a_pods_own_reach_no_terminal(self) -> None:
        for phase, words in (("\x1b[31mred", "red"), ("\u202ered", "running")):
            shown = Progress.from_object({"phase": phase})
            assert shown is not None
            assert shown.in_words() == words

    def test_of_a_job_that_has_succeeded_it_is_done_whatever_was_reported_last(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.report("worker-0", step=44, totalSteps=50, percent=88)
        world.settle()
        world.set_pod("worker-0", Phase.SUCCEEDED)
        world.settle()
        world.finish_deletions()
        world.settle()
        shown = world.job.status.progress
        assert world.is_true(Condition.COMPLETE)
        assert shown is not None
        assert (shown.text, shown.step) == ("done", 44)

    def test_what_a_pod_of_an_older_attempt_reported_does_not_count(self) -> None:
        world = running(seconds=0)
        world.advance(10)
        world.report("worker-0", step=5)
        world.settle()
        world.report("worker-0", step=7)
        world.take_away("worker-0")
        world.settle()
        shown = world.job.status.progress
        assert shown is not None
        assert shown.step == 5

    @pytest.mark.parametrize(
        ("reported", "read"),
        [
            ({"step": -1, "totalSteps": 10}, Progress(total_steps=10)),
            ({"step": "many", "epoch": 2}, Progress(epoch=2)),
            ({"percent": 400, "step": 1}, Progress(step=1)),
            ({"step": 10**300, "examplesPerSecond": 1e300, "epoch": 2}, Progress(epoch=2)),
            ({"metrics": {"loss": "x" * 1000}, "step": 1}, Progress(step=1)),
            ({"metrics": {str(n): "1" for n in range(1000)}, "step": 1}, Progress(step=1)),
            ({"phase": "x" * 1000, "step": 1}, Progress(step=1)),
            ({"updatedAt": "2099-01-01T00:00:00Z", "step": 1}, Progress(step=1)),
            ({"hello": "world"}, None),
            ([1, 2], None),
            ("step 5", None),
        ],
    )
    def test_of_a_pod_that_lies_what_makes_sense_is_read(self, reported: object, read: Progress | None) -> None:
        assert Progress.from_object(reported) == read


class TestAStall:
    def test_is_a_condition_that_says_since_when(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        world.advance(10)
        world.report("worker-0", step=120)
        world.settle()
        stands_still(world, "worker-0", step=120)
        condition = world.job.status.condition(Condition.PROGRESS_STALLED)
        assert condition is not None
        assert condition.status == "True"
        assert "step 120 since 2026-01-02T03:04:15Z" in condition.message
        assert [emit.reason for emit in world.events].count(Reason.STALLED) == 1
        assert world.job.status.state == "Running"

    def test_is_over_when_the_training_moves(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        stands_still(world, "worker-0", step=0)
        assert world.is_true(Condition.PROGRESS_STALLED)
        world.report("worker-0", step=1)
        world.settle()
        assert not world.is_true(Condition.PROGRESS_STALLED)

    def test_counts_from_the_first_answer(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        world.advance(600)
        for seconds in (0, 59):
            world.advance(seconds)
            world.report("worker-0", step=0)
            world.settle()
            assert not world.is_true(Condition.PROGRESS_STALLED)
        world.advance(1)
        world.report("worker-0", step=0)
        world.settle()
        assert world.is_true(Condition.PROGRESS_STALLED)

    def test_of_a_job_that_is_not_ready_is_none(self) -> None:
        world = World(job(runPolicy={"stallTimeoutSeconds": 60}))
        world.settle()
        world.advance(600)
        world.settle()
        assert not world.is_true(Condition.PROGRESS_STALLED)

    @pytest.mark.parametrize("moved", [{"phase": "Evaluating"}, {"restartsInPlace": 1}, {"lastCheckpointStep": 9}])
    def test_another_phase_checkpoint_or_start_is_an_advance(self, moved: dict[str, object]) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        world.report("worker-0", step=9, phase="Training")
        world.settle()
        world.advance(50)
        world.report("worker-0", **{"step": 9, "phase": "Training", **moved})
        world.settle()
        world.advance(50)
        world.report("worker-0", **{"step": 9, "phase": "Training", **moved})
        world.settle()
        assert not world.is_true(Condition.PROGRESS_STALLED)

    def test_fails_the_job_where_the_user_says_so(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60, onStall="Fail")
        stands_still(world, "worker-0", step=0)
        assert failed(world).reason == Reason.STALLED

    def test_restarts_the_job_where_the_user_says_so_and_the_users_budget_pays(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60, onStall="Restart", backoffLimit=1)
        stands_still(world, "worker-0", step=0)
        assert world.job.status.attempt == 2
        assert world.job.status.restarts.user == 1
        assert not world.is_true(Condition.PROGRESS_STALLED)
        world.finish_deletions()
        world.run_all()
        world.settle()
        stands_still(world, "worker-0-r1", step=0)
        assert failed(world).reason == Reason.STALLED
        assert "runPolicy.backoffLimit" in failed(world).message

    @pytest.mark.parametrize("action", ["None", "Restart", "Fail"])
    def test_has_the_pods_that_train_print_their_stacks_once(self, action: str) -> None:
        world = World(
            job(roles={"worker": 2, "evaluator": 1}, runPolicy={"stallTimeoutSeconds": 60, "onStall": action})
        )
        world.settle()
        world.pods = {name: replace(pod, ip=name) for name, pod in world.pods.items()}
        world.run_all()
        world.settle()
        stands_still(world, "worker-0", step=1)
        world.advance(10)
        world.report("worker-0", step=1, examplesPerSecond=5.0)
        world.settle()
        (asked,) = world.taken(AskForStacks)
        assert isinstance(asked, AskForStacks)
        assert [pod.name for pod in asked.pods] == ["digits-worker-0", "digits-worker-1"]

    def test_is_forgotten_when_the_job_ends(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        stands_still(world, "worker-0", step=0)
        world.set_pod("worker-0", Phase.SUCCEEDED)
        world.settle()
        world.finish_deletions()
        world.settle()
        assert not world.is_true(Condition.PROGRESS_STALLED)


class TestNoStall:
    """A stall needs evidence by this process of the operator."""

    @pytest.mark.parametrize("action", ["None", "Restart", "Fail"])
    def test_that_the_operator_was_away_is_none(self, action: str) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60, onStall=action)
        world.report("worker-0", step=200)
        world.settle()
        world.operator_restarts()
        world.advance(600)
        world.settle()
        world.report("worker-0", step=200)  # it has trained, was restored, and is there again by chance
        world.settle()
        world.advance(59)
        world.report("worker-0", step=200)
        world.settle()
        assert world.job.status.state == "Running"
        assert world.job.status.restarts.total == 0
        assert not world.is_true(Condition.PROGRESS_STALLED)

    @pytest.mark.parametrize("action", ["None", "Restart", "Fail"])
    def test_that_a_pod_does_not_answer_is_none(self, action: str) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60, onStall=action)
        world.report("worker-0", step=200)
        world.settle()
        world.advance(600)
        world.is_silent("worker-0", seconds=600)
        world.settle()
        assert world.job.status.state == "Running"
        assert world.job.status.restarts.total == 0
        assert not world.is_true(Condition.PROGRESS_STALLED)

    def test_an_answer_and_one_after_a_silence_that_show_the_same_place_are_evidence(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        world.report("worker-0", step=200)
        world.settle()
        world.advance(70)
        world.is_silent("worker-0", seconds=65)
        world.settle()
        world.report("worker-0", step=200)
        world.settle()
        assert world.is_true(Condition.PROGRESS_STALLED)

    def test_while_a_replica_that_was_replaced_alone_is_not_ready_the_others_wait(self) -> None:
        world = World(
            job(
                strategy="ParameterServer",
                roles={"chief": 1, "worker": 2, "ps": 1},
                runPolicy={"stallTimeoutSeconds": 60, "onStall": "Fail"},
            )
        )
        world.settle()
        world.run_all()
        world.settle()
        world.report("chief-0", step=5)
        world.settle()
        world.take_away("worker-1")
        world.settle()
        world.finish_deletions()
        world.advance(600)
        world.settle()
        world.run_all()
        world.settle()
        world.report("chief-0", step=5)
        world.settle()
        assert world.job.status.state == "Running"
        assert not world.is_true(Condition.PROGRESS_STALLED)

    def test_that_stalls_cannot_be_detected_is_reported_in_one_line_with_the_remedy(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60, onStall="Fail")
        world.is_silent("worker-0", seconds=59)
        world.settle()
        assert condition_of(world) == ("False", "NotStalled")
        world.is_silent("worker-0", seconds=61)
        world.settle()
        assert condition_of(world) == ("Unknown", "ProgressUnknown")
        (shown,) = [emit.message for emit in world.events if emit.reason == Reason.PROGRESS_UNKNOWN]
        assert shown == (
            "stalls cannot be detected: digits-worker-0 has not answered GET /status on port 2223 for 60 s, which is "
            "runPolicy.stallTimeoutSeconds; have the training report its progress, let the operator reach that port, "
            "or unset runPolicy.stallTimeoutSeconds"
        )
        world.report("worker-0", step=0)
        world.settle()
        assert condition_of(world) == ("False", "NotStalled")

    def test_what_another_process_found_stands_until_something_else_is_heard(self) -> None:
        world = running(seconds=0, stallTimeoutSeconds=60)
        stands_still(world, "worker-0", step=7)
        before = len(world.taken(PatchStatus)), len(world.events)
        world.operator_restarts()
        world.advance(20)
        world.settle()
        world.report("worker-0", step=7)
        world.settle()
        assert (len(world.taken(PatchStatus)), len(world.events)) == before
        assert world.is_true(Condition.PROGRESS_STALLED)
        world.report("worker-0", step=8)
        world.settle()
        assert not world.is_true(Condition.PROGRESS_STALLED)


@dataclass(frozen=True)
class OnePort(ClusterNetwork):
    """All pods serve their progress on this port."""

    port: int = 0

    def status_port(self, *, role: Role, index: int) -> int:
        return self.port


class TestAsking:
    async def test_stacks_are_asked_for_by_another_request_and_nobody_waits(self) -> None:
        lines: list[bytes] = []
        received = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            lines.append(await reader.readline())
            received.set()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        async with server:
            owner = job()
            port = server.sockets[0].getsockname()[1]
            platform = Platform(network=OnePort(port=port))
            StackRequests(platform).ask([replace(pod(owner, "worker-0"), ip="127.0.0.1")])
            assert lines == []
            await asyncio.wait_for(received.wait(), 5)
        assert lines == [b"POST /stacks HTTP/1.0\r\n"]

    async def test_of_the_replica_that_knows_the_latest_pod_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = running(seconds=0)
        world.set_pod("worker-0", Phase.FAILED, exit_code=75)
        world.advance(30)
        world.settle()
        world.run_all()
        world.settle()
        assert world.is_true(Condition.PODS_READY)
        state = ClusterState(world.platform)
        state.jobs.put(JobRecord(world.job, {}))
        state.caches.begin(world.job.uid)
        for name, there in world.pods.items():
            state.pods.apply(Change(None, Labelled(world.job.key, replace(there, ip=name))))
        asked: list[str] = []

        async def fetch(host: str, port: int) -> bytes:
            asked.append(host)
            return b'{"step": 7}'

        monkeypatch.setattr(progress, "fetch", fetch)
        queue: WorkQueue[Key] = WorkQueue(backoff=progress.SILENCE)
        await progress.ProgressReader(state, queue, metrics=Metrics(), now=lambda: NOW).ask_all()
        assert asked == ["digits-worker-0-r1"]
        shown = state.caches.of(world.job.uid).progress
        assert shown is not None
        assert shown.progress.step == 7

    @virtual_time
    async def test_twenty_pods_are_asked_in_a_second_at_most_and_none_of_a_job_that_is_gone(self) -> None:
        """An answer causes a write of a status at most: all jobs together cause twenty in a second."""
        world = running(seconds=0)
        state = ClusterState(world.platform)
        for number in range(60):
            uid = f"uid-{number}"
            one = replace(world.job, name=f"job-{number}", uid=uid)
            state.jobs.put(JobRecord(one, {}))
            state.caches.begin(uid)
            there = replace(world.pods["digits-worker-0"], name=f"job-{number}-worker-0", owner_uid=uid, ip=one.name)
            state.pods.apply(Change(None, Labelled(one.key, there)))
        asked: dict[str, float] = {}

        async def fetch(host: str, port: int) -> bytes:
            asked[host] = asyncio.get_running_loop().time()
            if host == "job-0":
                state.jobs.remove(("default", "job-59"), uid="uid-59")
            return b'{"step": 7}'

        queue: WorkQueue[Key] = WorkQueue(backoff=progress.SILENCE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(progress, "fetch", fetch)
            await progress.ProgressReader(state, queue, metrics=Metrics(), now=lambda: NOW).ask_all()
        assert sorted(asked) == sorted(f"job-{number}" for number in range(59))
        assert max(sum(begin <= at < begin + 0.999 for at in asked.values()) for begin in asked.values()) == 20
