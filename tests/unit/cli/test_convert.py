"""``dtj convert``: TFJobs of all shapes become jobs that are valid, and what is lost is reported."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtj.cli.convert.tfjob import convert
from dtj.cli.convert.tfjob_pods import NotConvertible
from support.commands import Dtj
from support.tfjobs import SHAPES


def file_of(folder: Path, text: str) -> Path:
    file = folder / "tfjob.yaml"
    file.write_text(text)
    return file


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


CLAIM, DYNAMIC = "one worker with a claim", "dynamic workers beside a sidecar"
GANG = "a gang in a queue of Volcano"


class Converted:
    """What became of a TFJob: the one job, its comment, and what was reported."""

    def __init__(self, folder: Path, dtj: Dtj, text: str, *options: str) -> None:
        done = dtj("convert", file_of(folder, text), *options)
        assert done.code == 0
        self.text, self.printed = done.out, done.err
        self.body: dict[str, Any] = yaml.safe_load(done.out)
        self.spec = self.body["spec"]
        self.main = self.spec["template"]["spec"]["containers"][-1]
        result = folder / "job.yaml"
        result.write_text(done.out)
        assert dtj("validate", result).err == ""


STRATEGIES = {
    "servers and workers": "ParameterServer",
    "one worker with a claim": "OneDevice",
    "an estimator with a chief and an evaluator": "MultiWorkerMirrored",
    "one worker with several GPUs": "Mirrored",
    "workers alone": "MultiWorkerMirrored",
    "a chief alone, its restart policy in the template": "OneDevice",
    "a master, and the run policy beside the roles": "ParameterServer",
    "a gang in a queue of Volcano": "MultiWorkerMirrored",
    "a job of Kueue as a cluster shows it": "MultiWorkerMirrored",
    "dynamic workers beside a sidecar": "ParameterServer",
    "servers that differ from the workers by a little": "ParameterServer",
    "an old TPU": "OneDevice",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_becomes_a_valid_job_of_the_strategy_that_fits_below_what_is_to_be_checked(
    tmp_path: Path, dtj: Dtj, shape: str
) -> None:
    made = Converted(tmp_path, dtj, SHAPES[shape])
    assert made.spec["strategy"] == STRATEGIES[shape]
    assert made.body["kind"] == "DistributedTrainingJob"
    assert "tensorflow" not in [c["name"] for c in made.spec["template"]["spec"]["containers"]]
    comments = [line.removeprefix("# - ") for line in made.text.splitlines() if line.startswith("# - ")]
    assert comments
    assert made.text.startswith("# From a TFJob of kubeflow.org/")
    assert all(line.endswith(f": {words}") for line, words in zip(made.printed.splitlines(), comments, strict=True))


def test_a_claim_a_command_and_a_namespace_come_along(tmp_path: Path, dtj: Dtj) -> None:
    made = Converted(tmp_path, dtj, SHAPES["one worker with a claim"])
    assert made.body["metadata"] == {"name": "summaries", "namespace": "kubeflow"}
    assert made.main["command"] == ["python", "/var/mnist.py", "--log_dir=/train/logs"]
    assert made.spec["template"]["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "events"}
    assert made.spec["runPolicy"] == {"cleanPodPolicy": "None"}
    assert made.spec["replicaSpecs"] == {"worker": {"replicas": 1, "restartPolicy": "Never"}}


def test_equal_templates_become_the_shared_one_and_small_differences_stay_small(tmp_path: Path, dtj: Dtj) -> None:
    same = Converted(tmp_path, dtj, SHAPES["servers and workers"])
    assert all("template" not in role for role in same.spec["replicaSpecs"].values())
    uneven = Converted(tmp_path, dtj, SHAPES["servers that differ from the workers by a little"])
    assert uneven.main["args"] == ["--worker"]
    assert uneven.spec["replicaSpecs"] == {
        "chief": {"replicas": 1, "args": ["--chief"], "resources": {}},
        "worker": {"replicas": 2},
        "ps": {"replicas": 1, "args": [], "resources": {}},
    }


def test_a_role_that_differs_otherwise_keeps_its_own_template(tmp_path: Path, dtj: Dtj) -> None:
    text = SHAPES["servers that differ from the workers by a little"].replace("example/u:1", "example/v:1", 1)
    made = Converted(tmp_path, dtj, text)
    assert made.spec["replicaSpecs"]["chief"]["template"]["spec"]["containers"][0]["image"] == "example/v:1"


def test_the_run_policy_next_to_the_roles_is_taken_too(tmp_path: Path, dtj: Dtj) -> None:
    made = Converted(tmp_path, dtj, SHAPES["a master, and the run policy beside the roles"])
    assert made.spec["runPolicy"] == {
        "backoffLimit": 5,
        "activeDeadlineSeconds": 7200,
        "ttlSecondsAfterFinished": 600,
        "cleanPodPolicy": "All",
    }
    assert list(made.spec["replicaSpecs"]) == ["chief", "worker", "ps"]
    assert made.body["metadata"]["name"] == "tfjob"


def test_a_scheduling_policy_becomes_a_gang_of_volcano(tmp_path: Path, dtj: Dtj) -> None:
    made = Converted(tmp_path, dtj, SHAPES["a gang in a queue of Volcano"])
    assert made.spec["runPolicy"] == {
        "backoffLimit": 2,
        "successPolicy": "AllWorkers",
        "scheduling": {
            "gang": "Volcano",
            "queue": "research",
            "minAvailable": 3,
            "priorityClassName": "high",
            "timeoutSeconds": 60,
        },
    }
    assert "schedulingPolicy.minResources: left out" in made.printed
    assert "restartPolicy: Always became OnFailure" in made.printed


def test_a_gang_of_which_no_pod_waits_stays_one(tmp_path: Path, dtj: Dtj) -> None:
    made = Converted(tmp_path, dtj, changed(SHAPES[GANG], "minAvailable: 3", "minAvailable: 0"))
    assert made.spec["runPolicy"]["scheduling"]["minAvailable"] == 1


def test_a_success_policy_that_a_chief_makes_void_is_left_out(tmp_path: Path, dtj: Dtj) -> None:
    shape = "a master, and the run policy beside the roles"
    made = Converted(tmp_path, dtj, SHAPES[shape].replace("spec:\n", "spec:\n  successPolicy: AllWorkers\n", 1))
    assert "successPolicy" not in made.spec["runPolicy"]
    assert "spec.successPolicy: AllWorkers has no effect in a TFJob with a chief: left out" in made.printed


def test_a_job_of_kueue_stays_in_its_queue_and_nothing_of_the_server_stays(tmp_path: Path, dtj: Dtj) -> None:
    made = Converted(tmp_path, dtj, SHAPES["a job of Kueue as a cluster shows it"])
    assert made.body["metadata"] == {"name": "queued", "namespace": "team", "labels": {"team": "vision"}}
    assert made.spec["runPolicy"] == {"scheduling": {"gang": "Kueue", "queue": "team-queue"}}
    assert "runPolicy.suspend: was set by Kueue" in made.printed
    assert "status" not in made.body


def test_another_controllers_job_stays_another_controllers(tmp_path: Path, dtj: Dtj) -> None:
    text = SHAPES["a job of Kueue as a cluster shows it"].replace("kubeflow.org/training-operator", "example.com/them")
    made = Converted(tmp_path, dtj, text)
    assert made.spec["managedBy"] == "example.com/them"
    assert "the operator leaves this job to example.com/them" in made.printed


def test_variables_of_the_operator_ports_and_names_of_the_container_are_taken_care_of(tmp_path: Path, dtj: Dtj) -> None:
    made = Converted(tmp_path, dtj, SHAPES["dynamic workers beside a sidecar"])
    pod = made.spec["template"]["spec"]
    assert made.spec["port"] == 3333
    assert made.main["ports"] == [{"name": "board", "containerPort": 6006}]
    assert [variable["name"] for variable in made.main["env"]] == ["CPUS"]
    assert made.main["env"][0]["valueFrom"]["resourceFieldRef"]["containerName"] == "trainer"
    assert [variable["name"] for variable in pod["initContainers"][0]["env"]] == ["A"]
    assert made.spec["elastic"] == {"minReplicas": 1, "maxReplicas": 3}
    assert "variable TF_CONFIG of container trainer left out" in made.printed
    assert "variable DTJ_X of container fetch left out" in made.printed


def test_a_restart_policy_in_the_template_counts_for_nothing_as_in_a_tfjob(tmp_path: Path, dtj: Dtj) -> None:
    made = Converted(tmp_path, dtj, SHAPES["a chief alone, its restart policy in the template"])
    assert made.spec["replicaSpecs"]["chief"] == {"replicas": 1, "restartPolicy": "Never"}
    assert "template.spec.restartPolicy: left out" in made.printed
    assert "not set, which means Never in a TFJob" in made.printed


NOTES = {
    "no limit of restarts": ("workers alone", "", "", "backoffLimit: not set, which means no limit"),
    "pods that stay": ("workers alone", "", "", "cleanPodPolicy: not set, which means None in a TFJob; here Running"),
    "evictions": (CLAIM, "", "", "worker.restartPolicy: Never: a pod that is evicted or drained fails a TFJob"),
    "TF_CONFIG of one replica": (CLAIM, "", "", "TF_CONFIG is set for one replica too"),
    "GPUs": ("one worker with several GPUs", "", "", "the limits for GPUs were kept; spec.accelerator would also set"),
    "a TPU as a resource": ("an old TPU", "", "", "cloud-tpus.google.com/v2 stays as it is"),
    "the strategy": (DYNAMIC, "", "", "spec.strategy: ParameterServer was chosen for 3 workers and 1 ps"),
    "the port of our own progress": (DYNAMIC, "3333", "2223", "spec.port: 2223 serves the progress"),
    "a field that nobody knows": (
        "workers alone",
        "spec:\n  tfReplica",
        "spec:\n  paused: true\n  tfReplica",
        "spec.paused: has no counterpart and was left out",
    ),
    "more pods at once than there are": (
        GANG,
        "minAvailable: 3",
        "minAvailable: 4",
        "minAvailable: 4 is more than the job's 3 pods",
    ),
    "a part of a job in a queue of Kueue": (
        GANG,
        "{name: gang}",
        "{name: gang, labels: {kueue.x-k8s.io/queue-name: q}}",
        "schedulingPolicy.minAvailable: left out: Kueue admits whole jobs only",
    ),
    "the network of the nodes": (
        CLAIM,
        "          containers:\n",
        "          hostNetwork: true\n          containers:\n",
        "hostNetwork: each pod takes ports 2222 and 2223 of its node",
    ),
    "a restart policy of the container, which Kubernetes 1.35 knows": (
        CLAIM,
        "- name: tensorflow",
        "- name: tensorflow\n            restartPolicy: Always",
        "restartPolicy left out: the operator restarts pods",
    ),
}
"""Of what becomes otherwise: a shape, what is changed in it into what, and what is reported."""


@pytest.mark.parametrize("what", NOTES)
def test_what_becomes_otherwise_or_behaves_otherwise_is_named(tmp_path: Path, dtj: Dtj, what: str) -> None:
    shape, old, new, note = NOTES[what]
    made = Converted(tmp_path, dtj, changed(SHAPES[shape], old, new) if old else SHAPES[shape])
    assert note in made.printed
    assert "restartPolicy" not in made.main
    assert made.spec.get("port") == (3333 if shape == DYNAMIC and not new else None)
    assert shape != GANG or "minAvailable" not in made.spec["runPolicy"]["scheduling"]


def test_what_does_not_change_is_not_named(tmp_path: Path, dtj: Dtj) -> None:
    printed = Converted(tmp_path, dtj, SHAPES["servers and workers"].replace("Never", "OnFailure")).printed
    assert not any(words in printed for words in ("Never:", "TF_CONFIG is set", "GPUs"))
    claimed = Converted(tmp_path, dtj, SHAPES["one worker with a claim"]).printed
    assert "cleanPodPolicy" not in claimed


def test_the_strategy_can_be_set(tmp_path: Path, dtj: Dtj) -> None:
    made = Converted(tmp_path, dtj, SHAPES["one worker with several GPUs"], "--strategy", "CentralStorage")
    assert made.spec["strategy"] == "CentralStorage"
    assert "was chosen" not in made.printed


def test_what_does_not_fit_the_wanted_strategy_is_reported_first_and_is_no_failure(tmp_path: Path, dtj: Dtj) -> None:
    done = dtj("convert", file_of(tmp_path, SHAPES["servers and workers"]), "--strategy", "OneDevice")
    first, *_ = done.err.splitlines()
    assert done.code == 0
    assert "spec.replicaSpecs: strategies OneDevice, Mirrored" in first
    assert first.endswith("(dtj validate rejects this)")


def test_other_objects_of_a_file_are_printed_as_they_are(tmp_path: Path, dtj: Dtj) -> None:
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: events}\n---"
    done = dtj("convert", file_of(tmp_path, claim + SHAPES["one worker with a claim"]))
    kinds = [body["kind"] for body in yaml.safe_load_all(done.out)]
    assert (done.code, kinds) == (0, ["PersistentVolumeClaim", "DistributedTrainingJob"])
    assert "PersistentVolumeClaim: printed unchanged" in done.err


SIMPLE = SHAPES["workers alone"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
            "tfjob.yaml: there is no TFJob (kubeflow.org/…) here, but Pod (v1)\n",
        ),
        (
            "apiVersion: v1\nkind: Secret\n---\nkind: Secret\napiVersion: v1\n---\nkind: PyTorchJob\n"
            "apiVersion: kubeflow.org/v1\n---\nkind: TFJob\n---\na: 1\n",
            "tfjob.yaml: there is no TFJob (kubeflow.org/…) here, but Secret (v1), PyTorchJob (kubeflow.org/v1), "
            "TFJob (no apiVersion) and an object without a kind (no apiVersion)\n",
        ),
        (
            "apiVersion: training.dtj.dev/v1alpha1\nkind: DistributedTrainingJob\n",
            "here, but DistributedTrainingJob (training.dtj.dev/v1alpha1), which needs no conversion\n",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: []\n",
            "tfjob.yaml: there is no TFJob (kubeflow.org/…) here, but an empty list\n",
        ),
        (
            changed(SIMPLE, "Worker:", "Boss:"),
            "spec.tfReplicaSpecs.Boss: not a role of a TFJob: use one of chief, master",
        ),
        (changed(SIMPLE, "tfReplicaSpecs:", "replicaSpecs:"), "spec.replicaSpecs: a TFJob of v1alpha1"),
        (changed(SIMPLE, "template:", "pod:"), "spec.tfReplicaSpecs.Worker.template: is missing"),
        ("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: x}\nspec: {}\n", "tfReplicaSpecs: is missing"),
        ("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: x}\nspec: 7\n", "spec: must hold fields"),
        ("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: x}\n", "x: spec: is missing"),
        (
            "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: x}\nspec: {tfReplicaSpecs: {}}\n",
            "spec.tfReplicaSpecs has no role",
        ),
        (
            "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: x}\nspec: {tfReplicaSpecs: {Worker: null}}\n",
            "spec.tfReplicaSpecs.Worker: is missing",
        ),
        (
            changed(SHAPES["dynamic workers beside a sidecar"], "name: tensorflow\n", "name: trains\n"),
            "spec.containers: none is named tensorflow: name the one that trains so",
        ),
        (
            changed(SHAPES["an estimator with a chief and an evaluator"], "Evaluator:", "Master:"),
            "there is a chief already",
        ),
    ],
)
def test_what_is_no_tfjob_is_one_line_and_code_2(tmp_path: Path, dtj: Dtj, text: str, complaint: str) -> None:
    assert complaint in dtj("convert", file_of(tmp_path, text)).complaint


# -- whatever is in the file ---------------------------------------------------------------------------------


JUNK: tuple[Any, ...] = (None, 7, "x", [], {"a": None})


def places(value: object, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where there is something in a document, at all depths."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield (*above, key)
        yield from places(child, (*above, key))


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_stands_anywhere_is_converted_or_refused_in_one_line(shape: str) -> None:
    body = yaml.safe_load(SHAPES[shape])
    body = body["items"][0] if body["kind"] == "List" else body
    for place in places(body):
        for junk in JUNK:
            changed_body = copy.deepcopy(body)
            holder = changed_body
            for step in place[:-1]:
                holder = holder[step]
            holder[place[-1]] = junk
            try:
                printed = convert(changed_body).notes
            except NotConvertible as error:
                printed = (str(error),)
            assert not any("\n" in line for line in printed), place
