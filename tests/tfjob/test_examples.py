"""The examples of training-operator for TensorFlow, unchanged; their pods are played."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dtj.api.json import JsonObject, dig, objects, text
from support.played_pods import Player
from support.tfjob_sdk import Sdk
from support.tfjob_world import LABELS, TfJobWorld
from testbed import ApiError, ControlPlane

PROGRAM = Path(__file__).parent / "programs" / "run_notebook.py"
NOTEBOOK = "image-classification/create-tfjob.ipynb"
PODS = {
    "simple.yaml": {"worker-0", "worker-1"},
    "dist-mnist/tf_job_mnist.yaml": {"chief-0", "ps-0", "worker-0", "worker-1"},
    "distribution_strategy/multi_worker_tfjob.yaml": {"worker-0", "worker-1"},
    "mnist_with_summaries/tf_job_mnist.yaml": {"worker-0"},
}


def train(pod: JsonObject) -> int | None:
    """Parameter servers serve until they are stopped."""
    return None if dig(pod, "metadata", "labels", f"{LABELS}/replica-type") == "ps" else 0


@pytest.mark.parametrize("example", PODS)
def test_a_manifest_trains_to_its_end(world: TfJobWorld, upstream: Path, example: str) -> None:
    manifest = upstream / "examples" / "tensorflow" / example
    body = yaml.safe_load(manifest.read_text())
    name = text(dig(body, "metadata", "name"))
    there = TfJobWorld(world.plane, _namespace(world.plane, body) or world.namespace)
    with Player(world.plane, [there.namespace], train):
        world.plane.kubectl("create", "--namespace", there.namespace, "--filename", str(manifest))
        job = there.await_condition(name, "Succeeded")
    assert {each.removeprefix(f"{name}-") for each in there.pods(name)} == PODS[example]
    conditions = {each["type"]: each["status"] for each in objects(dig(job, "status", "conditions"))}
    assert conditions == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert dig(job, "status", "completionTime")
    there.delete(name)


def test_the_notebook_trains_to_its_end(served: ControlPlane, upstream: Path, users: Sdk) -> None:
    """Each cell is run, and the ones that ask give what a reader of the notebook expects."""
    notebook = upstream / "examples" / "tensorflow" / NOTEBOOK
    namespace = "kubeflow-user-example-com"
    _make_namespace(served, namespace)
    answers = users.folder / "answers.json"
    with Player(served, [namespace], train):
        done = users.run(PROGRAM, notebook, answers)
    assert done.returncode == 0, done.stderr
    found = json.loads(answers.read_text())
    assert found["training_client.is_job_succeeded(name)"] == "True"
    assert "mnist-chief-0 learns" in found["training_client.get_job_logs(name)"]


def _namespace(plane: ControlPlane, body: JsonObject) -> str:
    namespace = dig(body, "metadata", "namespace")
    if not isinstance(namespace, str):
        return ""
    _make_namespace(plane, namespace)
    return namespace


def _make_namespace(plane: ControlPlane, name: str) -> None:
    try:
        plane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    except ApiError as error:
        if error.code != 409:
            raise
