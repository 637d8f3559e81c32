"""``dtj explain``: shows the objects that the planner would create, and what follows when a pod is lost."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from bad_tfjobs import role, tfjob
from builders import CLAIM_TEMPLATE, manifest, stored
from dtj.api import kueue
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig
from dtj.cli.common.options import Place
from dtj.cli.explain.simulation import UID, simulate
from dtj.core.manifests.pod import PodRenderer
from dtj.core.platform import Platform
from dtj.core.replicas import replicas
from dtj.kube.gateway import JOBS, TFJOBS
from support.commands import Done, Dtj
from support.fake_gateway import FakeGateway
from support.local_runs import write

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


def explained(dtj: Dtj, *arguments: object) -> str:
    """The output of an explanation that succeeds."""
    done = dtj("explain", *arguments)
    assert done.code == 0
    return done.out


def losses(text: str) -> list[str]:
    """What it says of the loss of a pod, without comment signs."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("# When a pod of "))
    return [line.removeprefix("#   ") for line in lines[start + 1 :] if line.startswith("# ")]


def names(text: str) -> list[object]:
    """Kind and name of each object."""
    return [f"{item['kind']} {item['metadata']['name']}" for item in yaml.safe_load_all(text)]


def objects_of(body: JsonObject) -> tuple[JsonObject, ...]:
    return simulate(body, Platform(), namespace="default", now=datetime.now(UTC)).objects


def kinds(found: tuple[JsonObject, ...]) -> list[str]:
    return [str(item["kind"]) for item in found]


# -- what would be created -----------------------------------------------------------------------------------


def test_the_pods_are_those_that_the_operator_makes() -> None:
    body = manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
    job = Job.from_object(stored(body, uid=UID))
    assert job.spec is not None
    wanted = tuple(map(PodRenderer(job, job.spec, Platform()).render, replicas(job.spec)))
    assert tuple(item for item in objects_of(body) if item["kind"] == "Pod") == wanted


def test_tensorboard_next_to_the_job_is_shown_too(tmp_path: Path, dtj: Dtj) -> None:
    body = manifest(checkpoint={"claimTemplate": CLAIM_TEMPLATE}, tensorBoard={})
    assert kinds(objects_of(body)) == ["PersistentVolumeClaim", "Service", "Pod", "Pod", "Service", "Pod"]
    shown = names(explained(dtj, write(tmp_path, body)))
    assert shown[-2:] == ["Service digits-tensorboard", "Pod digits-tensorboard"]


def test_a_suspended_job_is_shown_as_it_would_be_resumed(tmp_path: Path, dtj: Dtj) -> None:
    file = write(tmp_path, manifest(runPolicy={"suspend": True}))
    done = dtj("explain", file)
    assert "digits-worker-1" in done.out
    assert "runPolicy.suspend is true: nothing is created until it is false" in done.err


def test_of_another_controllers_job_nothing_is_made(tmp_path: Path, dtj: Dtj) -> None:
    done = dtj("explain", write(tmp_path, manifest(managedBy="example.com/other")))
    assert (done.code, done.out) == (0, "")
    assert "our operator creates nothing for this job" in done.err


@pytest.mark.parametrize(
    ("scheduling", "kind", "pods_carry"),
    [
        ({"gang": "Volcano", "minAvailable": 2}, "PodGroup", ("spec", "schedulerName")),
        ({"gang": "Coscheduling"}, "PodGroup", ("metadata", "labels", "scheduling.x-k8s.io/pod-group")),
        ({"gang": "Native"}, "PodGroup", ("spec", "schedulingGroup", "podGroupName")),
        ({"gang": "Kueue", "queue": "team"}, "Workload", ("metadata", "name")),
        ({"queue": "team"}, "Workload", ("metadata", "name")),
    ],
)
def test_a_gang_is_shown_as_on_a_cluster_that_has_it(
    tmp_path: Path, dtj: Dtj, scheduling: dict[str, object], kind: str, pods_carry: tuple[str, ...]
) -> None:
    body = manifest(runPolicy={"scheduling": scheduling})
    found = objects_of(body)
    assert sorted(kinds(found)) == sorted([kind, "Pod", "Pod", "Service"])
    assert all(dig(item, *pods_carry) for item in found if item["kind"] == "Pod")
    done = dtj("explain", write(tmp_path, body))
    assert f"{kind} digits" in names(done.out)
    assert "runPolicy.scheduling: as on a cluster with " in done.err


def test_a_job_with_a_workload_priority_class_is_explained(tmp_path: Path, dtj: Dtj) -> None:
    body = manifest()
    labels: JsonObject = {kueue.QUEUE: "team", kueue.PRIORITY_CLASS: "high"}
    body["metadata"] = {"name": "digits", "labels": labels}
    assert sorted(kinds(objects_of(body))) == ["Pod", "Pod", "Service", "Workload"]
    assert "the cluster has the value of WorkloadPriorityClass high" in dtj("explain", write(tmp_path, body)).err


# -- the loss of a pod ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_each_example_can_be_explained(dtj: Dtj, example: Path) -> None:
    text = explained(dtj, example)
    assert any(str(name).startswith("Pod ") for name in names(text))
    assert losses(text)


def test_it_says_which_job_and_namespace_it_is(tmp_path: Path, dtj: Dtj) -> None:
    text = explained(dtj, write(tmp_path, manifest(port=3333)), "--namespace", "team")
    assert "# When a pod of digits (MultiWorkerMirrored, namespace team) is lost:" in text.splitlines()
    assert "worker-0.digits.team.svc:3333" in text


LOST = {
    "a worker of collectives": (
        manifest(),
        "all start again from the last checkpoint, at most 3 times in all",
        "all start again from the last checkpoint, without limit",
    ),
    "a worker among servers": (
        manifest(strategy="ParameterServer", roles={"worker": 2, "ps": 1}),
        "it starts again alone, at most 3 times in all",
        "it starts again alone, without limit",
    ),
    "one that must not restart": (
        manifest(replicaSpecs={"worker": {"restartPolicy": "Never"}}),
        "the job fails",
        "all start again from the last checkpoint, without limit",
    ),
    "one with limits": (
        manifest(runPolicy={"backoffLimit": 1, "disruptionLimit": 2, "restartScope": "Pod"}),
        "it starts again alone, at most 1 time in all",
        "it starts again alone, at most 2 times in all",
    ),
    "one that no restart can help": (
        manifest(runPolicy={"backoffLimit": 0, "disruptionLimit": 0}),
        "the job fails",
        "the job fails",
    ),
    "one with fatal exit codes": (
        manifest(runPolicy={"exitCodes": {"fatal": [7]}}),
        "all start again from the last checkpoint, at most 3 times in all; after exit code 7 the job fails",
        "all start again from the last checkpoint, without limit",
    ),
    "one whose exit code decides": (
        manifest(
            replicaSpecs={"worker": {"replicas": 2, "restartPolicy": "ExitCode"}},
            runPolicy={"exitCodes": {"retryable": [1, 2]}},
        ),
        "all start again from the last checkpoint, at most 3 times in all; after exit code 126, 127, 128, 134 and 139 "
        "the job fails",
        "all start again from the last checkpoint, without limit",
    ),
}


@pytest.mark.parametrize("who", LOST)
def test_what_follows_the_loss_of(tmp_path: Path, dtj: Dtj, who: str) -> None:
    body, error, taken = LOST[who]
    lines = losses(explained(dtj, write(tmp_path, body), "--role", "worker"))
    assert lines[:2] == [f"worker  error       {error}", f"        disruption  {taken}"]


def test_a_job_without_checkpoints_reports_where_it_begins_again(tmp_path: Path, dtj: Dtj) -> None:
    printed = "spec.checkpoint is not set: restarts begin at step 0"
    assert printed in explained(dtj, write(tmp_path, manifest()))
    assert printed not in explained(dtj, write(tmp_path, manifest(checkpoint={"path": "gs://bucket/digits"})))


def test_of_a_job_with_checkpoints_in_memory_it_says_when_they_are_lost(tmp_path: Path, dtj: Dtj) -> None:
    def printed(**checkpoint: object) -> str:
        body = manifest(checkpoint=checkpoint, runPolicy={"restartScope": "Pod"})
        return explained(dtj, write(tmp_path, body))

    assert "#   Only memory holds the state" in printed(inMemory={})
    assert "Only memory holds the state" not in printed(path="gs://bucket/digits", inMemory={})


def test_of_an_elastic_job_it_says_when_the_others_go_on_without_a_worker(tmp_path: Path, dtj: Dtj) -> None:
    elastic = {"minReplicas": 2, "maxReplicas": 4, "shrinkAfterSeconds": 9}
    printed = "The others go on without it after 9 s, if 2 workers or more are left."
    assert printed in explained(dtj, write(tmp_path, manifest(elastic=elastic)))
    servers = manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1}, elastic=elastic)
    for file in (manifest(), servers):
        assert printed not in explained(dtj, write(tmp_path, file))


def test_of_an_elastic_job_with_spares_it_shows_their_pods_too(tmp_path: Path, dtj: Dtj) -> None:
    shown = explained(dtj, write(tmp_path, manifest(elastic={"maxReplicas": 2, "spares": 1})))
    assert "Pod digits-worker-2" in names(shown)
    assert "1 spare more than the workers above" in shown


def test_a_coordinator_comes_back_once_the_one_before_is_gone(tmp_path: Path, dtj: Dtj) -> None:
    file = write(tmp_path, manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1}))
    first, *_, last, _, _ = losses(explained(dtj, file))
    assert "it starts again alone, once its previous pod has certainly ended" in first
    assert last.endswith("all start again from the last checkpoint, without limit")


# -- objects -------------------------------------------------------------------------------------------------


def test_yaml_is_the_objects_themselves_and_of_one_role_where_that_is_wanted(tmp_path: Path, dtj: Dtj) -> None:
    body = manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
    file = write(tmp_path, body)
    text = explained(dtj, file)
    assert text.startswith(f"# UID {UID} stands for the job's own UID")
    assert "&id" not in text
    assert tuple(yaml.safe_load_all(text)) == objects_of(body)
    listed: dict[str, Any] = json.loads(explained(dtj, file, "-o", "json", "--role", "ps"))
    assert [dig(item, "metadata", "name") for item in listed["items"]] == ["digits", "digits-ps-0"]


def test_profiles_may_come_from_the_values_of_the_chart(tmp_path: Path, dtj: Dtj) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("acceleratorProfiles:\n- {name: fpga, resource: example.com/fpga, nodeSelector: {a: b}}\n")
    file = write(tmp_path, manifest(accelerator={"profile": "fpga", "count": 3}))
    text = explained(dtj, file, "--profiles", values)
    assert "example.com/fpga: 3\n" in text
    assert [dtj("validate", file, *more).code for more in (("--profiles", values), ())] == [0, 2]


# -- jobs on a cluster ---------------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    """The API server that a kubeconfig would name, with its namespace ``team``."""
    gateway = FakeGateway()

    async def connect(place: Place) -> AbstractAsyncContextManager[object]:
        return nullcontext(SimpleNamespace(gateway=gateway, namespace=place.namespace or "team"))

    monkeypatch.setattr(Place, "connect", connect)
    return gateway


KIND = "distributedtrainingjob"


@pytest.mark.parametrize("kind", ["", "dtj/", f"{KIND}.training.dtj.dev/", f"{KIND}s.training.dtj.dev/"])
def test_a_job_on_the_cluster_is_explained_by_its_name(dtj: Dtj, cluster: FakeGateway, kind: str) -> None:
    cluster.put(JOBS, {**stored(manifest(), namespace="team"), "status": {"attempt": 3, "startTime": "then"}})
    text = explained(dtj, f"{kind}digits")
    assert "# When a pod of digits (MultiWorkerMirrored, namespace team) is lost:\n" in text
    assert "Pod digits-worker-0" in names(text)


def test_a_tfjob_on_the_cluster_is_explained_as_the_operator_runs_it(dtj: Dtj, cluster: FakeGateway) -> None:
    cluster.put(TFJOBS, stored(tfjob(Worker=role(2)), namespace="other"))
    text = explained(dtj, "tfjob/mnist", "-n", "other")
    assert "mnist-worker-1.other.svc:2222" in text


@pytest.mark.parametrize(
    ("policy", "dynamic", "error"),
    [
        ("Never", True, "the others go on; the job fails when none is left that trains"),
        ("Never", False, "the job fails"),
        ("OnFailure", True, "it starts again alone, without limit"),
    ],
)
def test_what_follows_the_loss_of_a_dynamic_worker(
    tmp_path: Path, dtj: Dtj, policy: str, *, dynamic: bool, error: str
) -> None:
    two, one = role(2, restartPolicy=policy), role(1, restartPolicy=policy)
    body = tfjob(spec={"enableDynamicWorker": dynamic}, Worker=two, PS=one)
    found = losses(explained(dtj, write(tmp_path, body)))
    assert found[0] == f"worker  error       {error}"
    if policy == "Never":
        assert "ps      error       the job fails" in found


def test_a_job_and_a_tfjob_of_one_name_are_explained_together(dtj: Dtj, cluster: FakeGateway, tmp_path: Path) -> None:
    cluster.put(TFJOBS, stored(tfjob("digits"), namespace="team"))
    text = explained(dtj, write(tmp_path, manifest()), "tfjob/digits", "-n", "team")
    assert "# When a pod of digits (MultiWorkerMirrored, namespace team) is lost:\n" in text
    assert "# When a pod of digits (OneDevice, namespace team) is lost:\n" in text


def test_a_stored_job_that_breaks_a_rule_says_where_it_is(dtj: Dtj, cluster: FakeGateway) -> None:
    cluster.put(TFJOBS, stored(tfjob(PS=role(2)), namespace="team"))
    complaint = dtj("explain", "tfjob/mnist").complaint
    assert complaint.startswith("namespace team: mnist: spec.tfReplicaSpecs: no replica trains")


def test_a_job_that_is_not_there_is_the_servers_own_line(dtj: Dtj, cluster: FakeGateway) -> None:
    assert dtj("explain", "tfjob/mnist") == Done(4, "", 'tfjobs "mnist" not found\n')


def test_a_file_comes_before_a_job_of_its_name(
    dtj: Dtj, cluster: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, manifest()).rename(tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    assert "namespace default" in explained(dtj, "digits")
    assert cluster.calls == []


@pytest.mark.parametrize("name", ["job.yaml", "manifests/job", "-x/job"])
def test_what_can_be_no_job_is_a_file_that_is_missing(dtj: Dtj, cluster: FakeGateway, name: str) -> None:
    assert dtj("explain", "--", name).complaint == f"{name}: file not found\n"
    assert cluster.calls == []


# -- bad input -----------------------------------------------------------------------------------------------


def test_a_role_that_the_job_has_not_is_one_line(tmp_path: Path, dtj: Dtj) -> None:
    file = write(tmp_path, manifest())
    complaint = dtj("explain", file, "--role", "ps").complaint
    assert complaint == f"{file}: digits: --role: the job has no ps; it has worker\n"
