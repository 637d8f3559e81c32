"""What changes on a job in each phase of its life in a queue: it stays with Kueue, and no pod is without quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from builders import manifest
from dtj.api import kueue as keys
from dtj.api.json import JsonObject, dig, objects, text
from support.job_world import JobWorld
from support.kueue_queues import KUEUE, ONE_CPU, Queues
from support.operator_process import OperatorProcess, grant_flavors
from support.waiting import always
from testbed import ApiError, ControlPlane
from testbed.kueue import Kueue

RESOURCES = ("cpu", "example.com/a", "example.com/b")
LARGER: JsonObject = {
    "spec": {"containers": [{"name": "trainer", "image": "example/trainer:1", "resources": {"requests": {"cpu": "3"}}}]}
}
FIXED: tuple[JsonObject, ...] = (
    {"runPolicy": {"scheduling": {"queue": "another"}}},
    {"runPolicy": {"scheduling": {"priorityClassName": "another"}}},
    {"runPolicy": {"backoffLimit": 9}},
    {"managedBy": keys.MULTIKUEUE},
    {"template": LARGER},
)


@dataclass
class Operator:
    """An operator that has the accelerator profile `pool`."""

    process: OperatorProcess
    profiles: Path

    def has_profile(self, resource: str) -> None:
        """Have `pool` mean this resource; empty: there is no such profile. The operator starts again for that."""
        wanted = yaml.safe_dump([{"name": "pool", "resource": resource}] if resource else [])
        if self.profiles.read_text() != wanted:
            with self.stopped():
                self.profiles.write_text(wanted)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Without an operator, which then serves again."""
        self.process.kill()
        try:
            yield
        finally:
            self.process.start()
            self.process.await_serving()


@pytest.fixture(scope="module")
def queues(cluster: ControlPlane, kueue: Kueue) -> Iterator[Queues]:
    """One namespace for all cells of the table, each of which has a job and queues of its own."""
    world = JobWorld.new(cluster)
    grant_flavors(cluster, world.namespace)
    queues = Queues(world, world.namespace)
    for name, value in ("neighbours-high", 1000), ("neighbours-low", 10):
        queues.make_priority_class(name, value)
    yield queues
    cluster.delete_namespace(world.namespace)
    queues.delete()


@pytest.fixture(scope="module")
def operator(queues: Queues, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The operator of that namespace. It may not have logged an error."""
    folder = tmp_path_factory.mktemp("operator")
    profiles, log = folder / "profiles.yaml", folder / "operator.log"
    profiles.write_text("[]")
    plane, namespace = queues.world.plane, queues.world.namespace
    with OperatorProcess.serving(plane, [namespace], f"--accelerator-profiles={profiles}", log=log) as process:
        yield Operator(process, profiles)
    assert " ERROR " not in log.read_text(), log.read_text()


@dataclass
class Cell:
    """A job, its queue of the same name, and another queue."""

    queues: Queues
    operator: Operator
    job: str
    before: JsonObject | None = None

    @property
    def world(self) -> JobWorld:
        return self.queues.world

    def reach(self, phase: str) -> None:
        """Create the queues and the job, and bring the job to this phase."""
        check = ""
        if phase == "reserved":
            check = self.queues.create("AdmissionCheck", self.job, {"controllerName": "example.com/controller"})
            self.queues.answer_check(check)
        amounts = dict.fromkeys(RESOURCES, "0" if phase == "queued" else "9")
        self.queues.make(self.job, amounts=amounts, check=check)
        self.queues.make(f"{self.job}-other", amounts=dict.fromkeys(RESOURCES, "9"))
        elastic, accelerator = {"minReplicas": 2, "maxReplicas": 3}, {"profile": "pool", "count": 1}
        body = manifest(self.job, template=ONE_CPU, elastic=elastic, accelerator=accelerator)
        labels: JsonObject = {keys.QUEUE: self.job, keys.PRIORITY_CLASS: "neighbours-low"}
        self.world.apply({**body, "metadata": {"name": self.job, "labels": labels}})
        match phase:
            case "queued":
                self.queues.await_message("QuotaReserved", "insufficient", self.job)
            case "reserved":
                self.queues.await_condition("QuotaReserved", "True", self.job)
            case "admitted":
                self.world.await_pods(["worker-0", "worker-1"], self.job)
            case _:
                self.queues.run(self.job)
        match phase:
            case "evicted":
                self.queues.stop(self.job, "HoldAndDrain")
                self.queues.await_condition("Requeued", "False/ClusterQueueStopped", self.job)
            case "finished":
                self.world.end_pod(f"{self.job}-worker-0", exit_code=0)
                self.queues.await_condition("Finished", "True/Succeeded", self.job)
        self.before = self.queues.workload(self.job)

    def let_go(self, phase: str) -> None:
        """Take away what kept the job in its phase."""
        match phase:
            case "queued":
                self.queues.make(self.job, amounts=dict.fromkeys(RESOURCES, "9"))
            case "reserved" if self.queues.conditions(self.job).get("QuotaReserved", "").startswith("True"):
                self.queues.answer_check(f"{self.queues.prefix}-{self.job}", workload=self.job)
            case "evicted":
                self.queues.stop(self.job, "None")

    def label(self, key: str, value: str | None) -> None:
        self.world.patch({"metadata": {"labels": {key: value}}}, self.job)

    def spec(self, *changes: JsonObject) -> None:
        for change in changes:
            self.world.change_spec(change, self.job)

    def fixed(self) -> None:
        """Each is refused."""
        for change in FIXED:
            with pytest.raises(ApiError, match="cannot be changed") as refused:
                self.spec(change)
        raise refused.value

    def replace(self) -> None:
        """The operator sees nothing of the suspension."""
        with self.operator.stopped():
            self.spec({"runPolicy": {"suspend": True}}, {"template": LARGER, "runPolicy": {"suspend": False}})

    def others(self) -> None:
        annotations: JsonObject = {f"{keys.PROVISIONING_PREFIX}a": "1"}
        self.world.patch({"metadata": {"labels": {"team": "a"}, "annotations": annotations}}, self.job)
        self.spec({"runPolicy": {"activeDeadlineSeconds": 9999, "progressDeadlineSeconds": 9999}})

    def outcome(self) -> str:
        """What became of the Workload."""
        before, after = self.before, self.queues.workload(self.job)
        if after is None:
            return "gone"
        if dig(before, "metadata", "uid") != dig(after, "metadata", "uid"):
            return "new"
        same = all(dig(before, *path) == dig(after, *path) for path in (("spec",), ("metadata", "annotations")))
        return "kept" if same else "follows"

    def check(self) -> None:
        """What Kueue counts is what the pods ask for, and it counts nothing for a job that has no quota."""
        conditions, counted = self.queues.conditions(self.job), self._counted()
        holds = conditions.get("QuotaReserved", "").startswith("True") and "Finished" not in conditions
        assert bool(counted) == holds, (counted, conditions)
        if asked := self._asked():
            assert asked == counted, conditions

    def _counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for queue in (self.job, f"{self.job}-other"):
            body = self.world.api.request("GET", f"{KUEUE}/clusterqueues/{self.queues.prefix}-{queue}")
            for flavor in objects(dig(body, "status", "flavorsReservation")):
                found.update({text(each["name"]): int(text(each["total"])) for each in objects(flavor["resources"])})
        return +found

    def _asked(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for pod in self.world.pods(self.job).values():
            if dig(pod, "status", "phase") not in ("Succeeded", "Failed"):
                requests = dig(pod, "spec", "containers", 0, "resources", "requests")
                assert isinstance(requests, dict)
                found.update({name: int(text(amount)) for name, amount in requests.items()})
        return found

    def runs(self) -> None:
        """The job runs, with the quota that it needs."""
        self.world.run_pods(self.job)
        assert self.world.job(self.job).status.state == "Running", self.queues.conditions(self.job)
        self.check()

    def has_no_pod(self) -> None:
        """Nothing of the job runs, and it holds no quota."""
        assert not self.world.pods(self.job)
        assert self.queues.workload(self.job) is None
        self.check()


PHASES = ("queued", "reserved", "admitted", "running", "evicted", "finished")

TABLE: dict[str, tuple[Callable[[Cell], None], str]] = {
    # What becomes of the Workload in each of the phases, or of the change: `refused`.
    "another queue": (lambda cell: cell.label(keys.QUEUE, f"{cell.job}-other"), "new new kept kept new kept"),
    "no queue": (lambda cell: cell.label(keys.QUEUE, None), "kept kept kept kept kept kept"),
    "priority": (
        lambda cell: cell.label(keys.PRIORITY_CLASS, "neighbours-high"),
        "follows follows follows follows follows kept",
    ),
    "no priority": (lambda cell: cell.label(keys.PRIORITY_CLASS, None), "new kept kept kept new kept"),
    "limit": (lambda cell: cell.label(keys.MAX_EXECUTION_SECONDS, "9999"), "follows follows kept kept follows kept"),
    "bad limit": (lambda cell: cell.label(keys.MAX_EXECUTION_SECONDS, "soon"), "gone gone kept kept gone kept"),
    "gate": (
        lambda cell: cell.world.annotate({keys.ADMISSION_GATE: "example.com/budget"}, cell.job),
        "new new kept kept new kept",
    ),
    "others": (Cell.others, "kept kept kept kept kept kept"),
    "fixed": (Cell.fixed, "refused refused refused refused refused refused"),
    "replicas": (lambda cell: cell.spec({"replicaSpecs": {"worker": {"replicas": 3}}}), "new new new new new kept"),
    "suspend": (lambda cell: cell.spec({"runPolicy": {"suspend": True}}), "gone gone gone gone gone kept"),
    "replaced": (Cell.replace, "new new refused refused new refused"),
    "profile": (lambda cell: cell.operator.has_profile("example.com/b"), "new new kept kept new kept"),
    "no profile": (lambda cell: cell.operator.has_profile(""), "gone gone kept kept gone kept"),
    "deletion": (lambda cell: cell.world.delete_job(cell.job), "gone gone gone gone gone gone"),
}


HELD = (("gate", "new"), ("no profile", "kept"))
"""After these the job waits, or its pods are left as they are."""


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("change", TABLE)
def test_a_change(queues: Queues, operator: Operator, change: str, phase: str) -> None:
    operator.has_profile("example.com/a")
    cell = Cell(queues, operator, f"{change.replace(' ', '-')}-{phase}")
    cell.reach(phase)
    make, row = TABLE[change]
    wanted = row.split()[PHASES.index(phase)]

    def became() -> None:
        assert cell.outcome() == wanted
        cell.check()

    if wanted == "refused":
        with pytest.raises(ApiError, match="cannot be changed"):
            make(cell)
        queues.world.eventually(cell.check)
    else:
        make(cell)
        queues.world.eventually(became)
        if wanted == "kept":
            always(became, seconds=0.5)
        cell.let_go(phase)
        if wanted == "gone":
            queues.world.eventually(cell.has_no_pod)
        else:
            queues.world.eventually(cell.check if (change, wanted) in HELD or phase == "finished" else cell.runs)
            assert cell.outcome() == wanted
    if change != "deletion":
        queues.world.delete_job(cell.job)


def test_a_pod_that_is_lost_after_a_change_comes_back_with_the_quota_that_it_needs(
    queues: Queues, operator: Operator
) -> None:
    operator.has_profile("example.com/a")
    cell, others = Cell(queues, operator, "alone"), {"chief": 1, "ps": 1}
    queues.make(cell.job, amounts=dict.fromkeys(RESOURCES, "9"))
    queues.make(f"{cell.job}-other", amounts=dict.fromkeys(RESOURCES, "9"))
    accelerator = {"profile": "pool", "count": 1}
    queues.submit(cell.job, queue=cell.job, roles=others, strategy="ParameterServer", accelerator=accelerator)
    queues.world.await_running("chief-0", "ps-0", "worker-0", "worker-1", name=cell.job)
    operator.has_profile("example.com/b")
    queues.world.end_pod(f"{cell.job}-worker-1", exit_code=137)
    queues.world.eventually(cell.runs)
    assert "example.com/a" not in cell._asked()
    queues.world.delete_job(cell.job)
