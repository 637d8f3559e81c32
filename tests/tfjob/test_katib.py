"""The example of a Katib experiment with TFJobs: its trial as Katib makes it, with the collector that Katib injects."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from dtj.api.json import JsonObject, dig, object_at, objects, text
from support.injector import LABEL, injecting
from support.played_pods import write
from support.tfjob_world import TfJobWorld
from support.waiters import Waiters
from testbed import binaries, sources

State: TypeAlias = Callable[[JsonObject], object]

COLLECTOR = "metrics-logger-and-collector"
_LONGER_THAN_SIDECARS_GET = 8.0


@pytest.fixture(scope="session")
def katib() -> Path:
    """The module of Katib."""
    return sources.source_of(sources.KATIB)


@pytest.fixture
def trial(katib: Path) -> JsonObject:
    """The job of the experiment's first trial."""
    example = katib / "examples" / "v1beta1" / "kubeflow-training-operator" / "tfjob-mnist-with-summaries.yaml"
    template = object_at(object_at(yaml.safe_load(example.read_text()), "spec"), "trialTemplate")
    values = {"learningRate": "0.03", "batchSize": "64"}
    assert {text(each["name"]) for each in objects(template["trialParameters"])} == set(values)
    written = yaml.safe_dump(template["trialSpec"])
    for name, value in values.items():
        written = written.replace(f"${{trialParameters.{name}}}", value)
    job: JsonObject = yaml.safe_load(written)
    job["metadata"] = {"name": "trial"}
    # By this label our injector knows its pods; Katib's asks for the owner of the owner.
    _worker(job)["metadata"] = {"labels": {LABEL: "collector"}}
    return job


def _worker(job: JsonObject) -> JsonObject:
    """The pod template of the workers."""
    return object_at(object_at(object_at(object_at(job, "spec"), "tfReplicaSpecs"), "Worker"), "template")


@pytest.fixture
def state(katib: Path) -> State:
    """What Katib makes of a job, by its default conditions and the library that it reads them with."""
    constants = (katib / "pkg/apis/controller/experiments/v1beta1/constants.go").read_text()
    conditions = [_constant(constants, f"DefaultKubeflowJob{kind}Condition") for kind in ("Success", "Failure")]
    waiters = Waiters(binaries.ensure(("waiters",))["waiters"])
    return lambda job: waiters.ask("katib", *conditions, objects={"job": job})["job"]


def test_a_trial_runs_succeeds_and_its_collector_is_waited_for(
    world: TfJobWorld, trial: JsonObject, state: State, tmp_path: Path
) -> None:
    collector: JsonObject = {"name": COLLECTOR, "image": "example/collector:1"}
    with injecting(world.plane, world.namespace, {"collector": collector}, tmp_path, last=True):
        world.create(trial)
        pods = world.await_pods("trial", "worker-0", "worker-1")
    masters = [name for name, pod in pods.items() if _label(pod, "job-role") == "master"]
    assert masters == ["trial-worker-0"]
    assert {_label(pod, "replica-type") for pod in pods.values()} == {"worker"}
    world.run_pods("trial")
    assert state(world.await_condition("trial", "Running")) == "Running"

    # Training is over in both, and both collectors still read what it wrote.
    for name in pods:
        world.end_pod(name, 0, **{COLLECTOR: None})
    time.sleep(_LONGER_THAN_SIDECARS_GET)
    assert set(world.pods("trial")) == set(pods)

    for name in pods:
        world.end_pod(name, 0)
    assert state(world.await_condition("trial", "Succeeded")) == "Succeeded"
    assert set(world.pods("trial")) == set(pods), "the pods hold the logs"


def test_a_trial_whose_training_fails_has_failed(world: TfJobWorld, trial: JsonObject, state: State) -> None:
    object_at(object_at(object_at(trial, "spec"), "tfReplicaSpecs"), "Worker")["restartPolicy"] = "Never"
    del _worker(trial)["metadata"]
    world.create(trial)
    for pod in world.await_pods("trial", "worker-0", "worker-1").values():
        write(world.plane.api, pod, {})
    world.await_condition("trial", "Running")
    world.end_pod("trial-worker-0", 1)
    assert state(world.await_condition("trial", "Failed")) == "Failed"


def _label(pod: JsonObject, name: str) -> object:
    return dig(pod, "metadata", "labels", f"training.kubeflow.org/{name}")


def _constant(source: str, name: str) -> str:
    found = re.search(rf'^\s*{name} = "(.*)"$', source, re.MULTILINE)
    assert found, f"Katib has no constant {name}"
    return found[1].replace('\\"', '"')
