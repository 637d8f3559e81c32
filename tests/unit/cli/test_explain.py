"""``dtj explain``: shows what the planner would create, in sections or as objects."""

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
from dtj.cli.explain.render import explanation
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


def section(text: str, title: str) -> list[str]:
    """The lines below a title, without their indent."""
    lines = text.splitlines()
    start = lines.index(title) + 1
    end = lines.index("", start) if "" in lines[start:] else len(lines)
    return [line.strip() for line in lines[start:end]]


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
    text = explained(dtj, write(tmp_path, body))
    assert section(text, "Pods")[-1].startswith("digits-tensorboard")
    assert "image        example/trainer:1" in section(text, "Pod digits-tensorboard")
    assert "selects  training.dtj.dev/job-uid=<that of the job>, training.dtj.dev/role=tensorboard" in text


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
    assert f"{kind} digits (" in done.out
    assert "runPolicy.scheduling: as on a cluster with " in done.err


def test_a_job_with_a_workload_priority_class_is_explained(tmp_path: Path, dtj: Dtj) -> None:
    body = manifest()
    labels: JsonObject = {kueue.QUEUE: "team", kueue.PRIORITY_CLASS: "high"}
    body["metadata"] = {"name": "digits", "labels": labels}
    assert sorted(kinds(objects_of(body))) == ["Pod", "Pod", "Service", "Workload"]
    assert "the cluster has the value of WorkloadPriorityClass high" in dtj("explain", write(tmp_path, body)).err


# -- sections ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_each_example_can_be_explained(dtj: Dtj, example: Path) -> None:
    text = explained(dtj, example)
    assert {"Pods", "TF_CONFIG", "Environment", "When a pod is lost", "The end"} <= set(text.splitlines())


def test_pods_have_names_and_addresses(tmp_path: Path, dtj: Dtj) -> None:
    text = explained(dtj, write(tmp_path, manifest(port=3333)), "--namespace", "team")
    assert text.startswith("digits: MultiWorkerMirrored with 2 workers, in namespace team\n")
    assert section(text, "Pods")[1:] == [
        "digits-worker-0  worker  0      worker-0.digits.team.svc:3333",
        "digits-worker-1  worker  1      worker-1.digits.team.svc:3333",
    ]


def test_of_a_hundred_workers_the_first_and_the_last_are_listed(tmp_path: Path, dtj: Dtj) -> None:
    text = explained(dtj, write(tmp_path, manifest(roles={"worker": 100})))
    rows = [row.split("  ")[0] for row in section(text, "Pods")]
    assert rows == ["NAME", *(f"digits-worker-{n}" for n in range(4)), "… 95 more …", "digits-worker-99"]


def test_each_role_says_what_its_pods_need(tmp_path: Path, dtj: Dtj) -> None:
    container = {
        "name": "trainer",
        "image": "example/trainer:1",
        "command": ["python", "-m", "my train"],
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4", "memory": "1Gi"}},
    }
    account = {"serviceAccountName": "trains", "affinity": {"nodeAffinity": {}}}
    template = {
        "metadata": {"labels": {"team": "vision"}, "annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {"containers": [container, {"name": "logger", "image": "x"}], **account},
    }
    body = manifest(template=template, accelerator={"profile": "gke-nvidia-l4", "count": 2})
    assert section(explained(dtj, write(tmp_path, body)), "Each worker") == [
        "image        example/trainer:1",
        "command      python -m 'my train'",
        "resources    cpu 2, memory 1Gi, nvidia.com/gpu 2, at most cpu 4",
        "node labels  cloud.google.com/gke-accelerator=nvidia-l4",
        "tolerates    nvidia.com/gpu",
        "affinity     nodeAffinity",
        "account      trains",
        "labels       team=vision",
        "annotations  sidecar.istio.io/inject=false",
        "volumes      dtj-shm at /dev/shm",
        "next to it   logger",
    ]


def test_tf_config_is_that_of_the_first_of_each_role_or_of_all_of_one(tmp_path: Path, dtj: Dtj) -> None:
    file = write(tmp_path, manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 3, "ps": 1}))
    whole = section(explained(dtj, file), "TF_CONFIG")
    assert [line.split()[0] for line in whole] == ["chief-0", "worker-0", "ps-0"]
    workers = explained(dtj, file, "--role", "worker")
    config = section(workers, "TF_CONFIG")
    assert [line.split()[0] for line in config] == ["worker-0", "worker-1", "worker-2"]
    assert json.loads(config[2].split(maxsplit=1)[1])["task"] == {"type": "worker", "index": 2}
    assert "DTJ_INDEX        0 in worker-0, 1 in worker-1, 2 in worker-2" in section(workers, "Environment")
    assert "Each ps" not in workers


def test_a_narrow_terminal_gets_lines_that_go_on_below_and_tf_config_whole() -> None:
    body = manifest()
    simulation = simulate(body, Platform(), namespace="default", now=datetime.now(UTC))
    assert simulation.job.spec is not None
    lines = [line.plain for line in explanation(simulation, simulation.job.spec, width=50)]
    assert all(len(line) <= 50 for line in lines[1:] if '{"cluster"' not in line)
    assert any(json.loads(line)["task"]["index"] == 0 for line in lines if '{"cluster"' in line)
    assert "      last checkpoint, without limit" in lines


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
    lines = section(explained(dtj, write(tmp_path, body), "--role", "worker"), "When a pod is lost")
    assert lines[:2] == [f"worker  error       {error}", f"disruption  {taken}"]


def test_a_job_without_checkpoints_reports_where_it_begins_again(tmp_path: Path, dtj: Dtj) -> None:
    printed = "spec.checkpoint is not set: restarts begin at step 0"
    assert printed in explained(dtj, write(tmp_path, manifest()))
    assert printed not in explained(dtj, write(tmp_path, manifest(checkpoint={"path": "gs://bucket/digits"})))


def test_of_a_job_with_checkpoints_in_memory_it_says_how_much_and_when_they_are_lost(tmp_path: Path, dtj: Dtj) -> None:
    def printed(**checkpoint: object) -> str:
        body = manifest(checkpoint=checkpoint, runPolicy={"restartScope": "Pod"})
        return explained(dtj, write(tmp_path, body))

    alone = printed(inMemory={})
    assert "keeps 2 copies of its state in memory, of at most 1Gi in all." in alone
    assert "so many steps between two that copies cost at most 1 % of the training; its log says how many" in alone
    assert "Only memory holds the state" in alone
    both = printed(path="gs://bucket/digits", inMemory={"everySteps": 25, "sizeLimit": "3Gi"})
    assert "of at most 3Gi in all" in both
    assert "It copies after every 25 steps." in both
    assert "Only memory holds the state" not in both


def test_of_an_elastic_job_it_says_when_the_others_go_on_without_a_worker(tmp_path: Path, dtj: Dtj) -> None:
    elastic = {"minReplicas": 2, "maxReplicas": 4, "shrinkAfterSeconds": 9}
    printed = "The others go on without it after 9 s, if 2 workers or more are left."
    assert printed in explained(dtj, write(tmp_path, manifest(elastic=elastic)))
    servers = manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1}, elastic=elastic)
    for file in (manifest(), servers):
        assert printed not in explained(dtj, write(tmp_path, file))


def test_of_an_elastic_job_with_spares_it_shows_their_pods_too(tmp_path: Path, dtj: Dtj) -> None:
    shown = explained(dtj, write(tmp_path, manifest(elastic={"maxReplicas": 2, "spares": 1})))
    assert "MultiWorkerMirrored with 2 workers and 1 spare" in shown
    assert "digits-worker-2" in shown
    assert "1 spare more than the workers above" in shown


def test_a_coordinator_comes_back_once_the_one_before_is_gone(tmp_path: Path, dtj: Dtj) -> None:
    file = write(tmp_path, manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1}))
    first, *_, last, _, _ = section(explained(dtj, file), "When a pod is lost")
    assert "it starts again alone, once its previous pod has certainly ended" in first
    assert last.endswith("all start again from the last checkpoint, without limit")


def test_the_end_says_who_decides_and_what_stays(tmp_path: Path, dtj: Dtj) -> None:
    assert section(explained(dtj, write(tmp_path, manifest(roles={"chief": 1, "worker": 2}))), "The end")[0] == (
        "The job succeeds when chief-0 has completed."
    )
    policy = {"successPolicy": "AllWorkers", "ttlSecondsAfterFinished": 60, "cleanPodPolicy": "All"}
    assert section(explained(dtj, write(tmp_path, manifest(runPolicy=policy))), "The end") == [
        "The job succeeds when all 2 training replicas have completed.",
        "All pods are deleted.",
        "The job is deleted 60 s after its end.",
    ]


# -- objects -------------------------------------------------------------------------------------------------


def test_yaml_is_the_objects_themselves_and_of_one_role_where_that_is_wanted(tmp_path: Path, dtj: Dtj) -> None:
    body = manifest(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
    file = write(tmp_path, body)
    text = explained(dtj, file, "-o", "yaml")
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
    assert "resources    example.com/fpga 3" in text
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
    assert text.startswith("digits: MultiWorkerMirrored with 2 workers, in namespace team\n")
    assert section(text, "Pods")[1].startswith("digits-worker-0  worker")


def test_a_tfjob_on_the_cluster_is_explained_as_the_operator_runs_it(dtj: Dtj, cluster: FakeGateway) -> None:
    cluster.put(TFJOBS, stored(tfjob(Worker=role(2)), namespace="other"))
    text = explained(dtj, "tfjob/mnist", "-n", "other")
    assert section(text, "Pods")[2].endswith("mnist-worker-1.other.svc:2222")


def test_a_job_and_a_tfjob_of_one_name_are_explained_together(dtj: Dtj, cluster: FakeGateway, tmp_path: Path) -> None:
    cluster.put(TFJOBS, stored(tfjob("digits"), namespace="team"))
    text = explained(dtj, write(tmp_path, manifest()), "tfjob/digits", "-n", "team")
    assert "digits: MultiWorkerMirrored with 2 workers, in namespace team\n" in text
    assert "digits: OneDevice with 1 worker, in namespace team\n" in text


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
    assert "in namespace default" in explained(dtj, "digits")
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


def test_pods_in_the_network_of_their_nodes_are_said_to_need_a_node_each(tmp_path: Path, dtj: Dtj) -> None:
    spec = {"hostNetwork": True, "containers": [{"name": "trainer", "image": "i"}]}
    text = explained(dtj, write(tmp_path, manifest(roles={"worker": 3}, template={"spec": spec})))
    assert section(text, "Pods")[-1] == (
        "hostNetwork: each pod takes the ports 2222 and 2223 of its node, so no two of these pods share a node: 3 "
        "nodes with these ports free."
    )
    assert "hostNetwork" not in explained(dtj, write(tmp_path, manifest(roles={"worker": 3})))
