"""The example of a Katib experiment with TFJobs, by Katib's own controller: it makes the trials, injects the collectors
into their pods, and says what became of them. Collectors, and the algorithm that suggests parameters, are played."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest
import yaml

from dtj.api.json import JsonObject, dig, object_at, objects
from support.tfjob_world import TfJobWorld
from support.waiting import always, eventually, eventually_true
from testbed import ApiError, ControlPlane
from testbed.katib import INJECTION, Katib

COLLECTOR = "metrics-collector"
GOAL = "0.99"
NAME = "tfjob-mnist-with-summaries"
TRIAL = "trial"
_LONGER_THAN_SIDECARS_GET = 8.0


@pytest.fixture(scope="session")
def katib(served: ControlPlane) -> Iterator[Katib]:
    """Katib's controller."""
    katib = Katib(served)
    katib.install()
    katib.start()
    yield katib
    katib.stop()


@dataclass(frozen=True)
class Experiment:
    """The example, in the namespace of the test."""

    world: TfJobWorld
    katib: Katib

    def begin(self, *, restarts: str = "OnFailure") -> dict[str, JsonObject]:
        """Make it, with this restart policy of the workers, and suggest the parameters of one trial; its pods."""
        example = self.katib.module / "examples" / "v1beta1" / "kubeflow-training-operator" / f"{NAME}.yaml"
        body = yaml.safe_load(example.read_text())
        body["metadata"]["namespace"] = self.world.namespace
        body["spec"]["trialTemplate"]["trialSpec"]["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = restarts
        self.world.plane.kubectl("label", "namespace", self.world.namespace, INJECTION)
        self.world.plane.api.request("POST", self._path("experiments"), body)
        values = {"learning_rate": "0.03", "batch_size": "64"}
        assert {text["name"] for text in body["spec"]["parameters"]} == set(values)
        eventually(partial(self._suggest, values))
        return self.world.await_pods(TRIAL, "worker-0", "worker-1")

    def await_end(self, plural: str, name: str, kind: str) -> None:
        """Wait until Katib says that this is the end of one of its objects."""

        def ended() -> None:
            assert kind in self.holding(plural, name), self.katib.log[-5000:]

        eventually(ended)

    def holding(self, plural: str, name: str) -> set[object]:
        """What Katib says of one of its objects."""
        found = self.world.plane.api.request("GET", f"{self._path(plural)}/{name}")
        return {each["type"] for each in objects(dig(found, "status", "conditions")) if each["status"] == "True"}

    def _suggest(self, values: dict[str, str]) -> None:
        """What the service of the algorithm is asked for."""
        assignments = [{"name": name, "value": value} for name, value in values.items()]
        suggested = {"suggestions": [{"name": TRIAL, "parameterAssignments": assignments}], "suggestionCount": 1}
        path = f"{self._path('suggestions')}/{NAME}/status"
        try:
            self.world.plane.api.request("PATCH", path, {"status": suggested})
        except ApiError as error:
            raise AssertionError(f"Katib asks for no suggestion: {error}\n{self.katib.log[-5000:]}") from error

    def _path(self, plural: str) -> str:
        return f"{Katib.served}/namespaces/{self.world.namespace}/{plural}"


@pytest.fixture
def experiment(world: TfJobWorld, katib: Katib) -> Experiment:
    """One of the test's own."""
    return Experiment(world, katib)


def test_an_experiment_succeeds_by_a_trial_whose_collectors_are_waited_for(experiment: Experiment) -> None:
    world, pods = experiment.world, experiment.begin()
    for pod in pods.values():
        labels, containers = object_at(object_at(pod, "metadata"), "labels"), objects(dig(pod, "spec", "containers"))
        assert [each["name"] for each in containers] == ["tensorflow", COLLECTOR]
        assert labels["katib.kubeflow.org/trial"] == TRIAL
        assert labels["training.kubeflow.org/replica-type"] == "worker"
    masters = [name for name, pod in pods.items() if dig(pod, "metadata", "labels", "training.kubeflow.org/job-role")]
    assert masters == ["trial-worker-0"]
    world.run_pods(TRIAL)
    world.await_condition(TRIAL, "Running")

    # Training is over in both, and both collectors still read what it wrote.
    for name in pods:
        world.end_pod(name, 0, **{COLLECTOR: None})

    def waits() -> None:
        assert set(world.pods(TRIAL)) == set(pods)
        assert "Succeeded" not in experiment.holding("trials", TRIAL)

    always(waits, seconds=_LONGER_THAN_SIDECARS_GET)
    for name in pods:
        world.end_pod(name, 0)
    world.await_condition(TRIAL, "Succeeded")
    experiment.katib.report(TRIAL, GOAL)
    experiment.await_end("trials", TRIAL, "Succeeded")
    experiment.await_end("experiments", NAME, "Succeeded")
    eventually_true(lambda: not world.all_pods(TRIAL))  # Katib deletes the job of a trial that has ended


def test_a_trial_whose_training_fails_has_failed(experiment: Experiment) -> None:
    world, _ = experiment.world, experiment.begin(restarts="Never")
    world.run_pods(TRIAL)
    world.await_condition(TRIAL, "Running")
    world.end_pod("trial-worker-0", 1, **{COLLECTOR: 0})
    experiment.await_end("trials", TRIAL, "Failed")
