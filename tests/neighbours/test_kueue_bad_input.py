"""What is not there, or cannot be used, is named in the status of the job, with what to do about it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from builders import manifest
from dtj.api import kueue as keys
from dtj.api.json import JsonObject, object_at
from dtj.api.names import Condition
from support.kueue_queues import ONE_CPU, Queues


def _resources(flavor: str, resource: str) -> list[JsonValue]:
    flavors: list[JsonValue] = [{"name": flavor, "resources": [{"name": resource, "nominalQuota": "9"}]}]
    return [{"coveredResources": [resource], "flavors": flavors}]


def _check(queues: Queues, *, active: bool) -> None:
    check = queues.create("AdmissionCheck", "check", {"controllerName": "example.com/controller"})
    if active:
        queues.answer_check(check)
    queues.make("gpus", cpus=2, check=check)


def _topology(queues: Queues, topology: str) -> None:
    queues.create("ResourceFlavor", "flavor", {"nodeLabels": {"a": "b"}, "topologyName": topology})
    queues.make("gpus", cpus=2)


def _levels(queues: Queues) -> None:
    _topology(queues, queues.create("Topology", "topology", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}))


CASES: dict[str, tuple[Callable[[Queues], object], str]] = {
    "no LocalQueue": (lambda queues: None, "LocalQueue gpus doesn't exist: create it"),
    "no ClusterQueue": (lambda queues: queues.point("gpus", at="none"), "-none doesn't exist: create it"),
    "no flavor": (
        lambda queues: queues.make("gpus", resourceGroups=_resources("none", "cpu")),
        "references missing ResourceFlavor(s): none: create",
    ),
    "no check": (
        lambda queues: queues.make("gpus", cpus=2, check="none"),
        "references missing AdmissionCheck(s): none: create",
    ),
    "no controller of a check": (
        lambda queues: _check(queues, active=False),
        "references inactive AdmissionCheck(s): ",
    ),
    "no answer of a check": (lambda queues: _check(queues, active=True), "-check is Pending"),
    "no topology": (lambda queues: _topology(queues, "none"), 'there is no Topology "none" for TAS flavor'),
    "no level": (_levels, "does not contain the requested level: name a level"),
    "no topology of the flavor": (
        lambda queues: queues.make("gpus", cpus=2),
        "does not support TopologyAwareScheduling: set spec.topologyName",
    ),
    "no quota for a resource": (
        lambda queues: queues.make("gpus", resourceGroups=_resources(queues.flavor(), "memory")),
        "cpu unavailable in ClusterQueue: add the resource",
    ),
    "no such quota": (lambda queues: queues.make("gpus", cpus=1), "> maximum capacity (1): request less"),
    "no such namespace": (
        lambda queues: queues.make("gpus", cpus=2, namespaceSelector={"matchLabels": {"a": "b"}}),
        "doesn't match ClusterQueue selector: have spec.namespaceSelector",
    ),
    "no WorkloadPriorityClass": (
        lambda queues: queues.make("gpus", cpus=2),
        'workloadpriorityclasses.kueue.x-k8s.io "none" not found: create the class',
    ),
    "no PriorityClass": (
        lambda queues: queues.make("gpus", cpus=2),
        "no PriorityClass with name none was found: create it",
    ),
}


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("case", CASES)
def test_what_is_missing_is_named_with_the_remedy(queues: Queues, case: str) -> None:
    make, words = CASES[case]
    make(queues)
    template = copy.deepcopy(ONE_CPU)
    if case in ("no level", "no topology of the flavor"):
        object_at(template, "metadata")["annotations"] = {keys.TOPOLOGY_REQUIRED: "example.com/rack"}
    scheduling = {"gang": "Kueue", "queue": "gpus"}
    if case == "no PriorityClass":
        scheduling["priorityClassName"] = "none"
    labels: JsonObject = {keys.PRIORITY_CLASS: "none"} if case == "no WorkloadPriorityClass" else {}
    body = manifest(template=template, runPolicy={"scheduling": scheduling})
    queues.world.apply({**body, "metadata": {"name": "digits", "labels": labels}})

    def named() -> None:
        job = queues.world.job()
        said = [each for each in job.status.conditions if each.type in (Condition.SUSPENDED, Condition.INVALID)]
        assert any(words in each.message for each in said), said

    queues.world.eventually(named)
    assert queues.world.pods() == {}
