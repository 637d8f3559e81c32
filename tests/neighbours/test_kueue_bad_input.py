"""What is not there, or cannot be used, is named in the status of the job, with what to do about it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from pydantic import JsonValue

from builders import manifest
from dtj.api import kueue as keys
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Condition
from support.job_world import JobWorld
from support.kueue_queues import ONE_CPU, Queues
from support.operator_process import OperatorProcess, grant_flavors
from testbed import ApiError, ControlPlane, binaries, runs
from testbed.binaries import KUEUE
from testbed.kueue import Kueue, Limits


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


def test_a_version_of_kueue_that_is_too_old_or_too_new_is_named(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    world = JobWorld.new(own_control_plane)
    for version in "v1beta1", "v1beta3":
        own_control_plane.apply(_workloads(version))
        with OperatorProcess.serving(own_control_plane, [world.namespace], log=tmp_path / f"{version}.log"):
            world.submit(version, runPolicy={"scheduling": {"gang": "Kueue", "queue": "gpus"}})
            world.eventually(partial(_names, world, version))


def test_a_job_whose_manifest_cannot_be_read_any_more_gives_its_quota_back_when_it_is_evicted(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    world = JobWorld.new(own_control_plane)
    grant_flavors(own_control_plane, world.namespace)
    kueue, queues = Kueue(own_control_plane), Queues(world, "test")
    with runs.launching():
        kueue.install()
        kueue.start(Limits())
    queues.make("gpus", cpus=2)
    with OperatorProcess.serving(own_control_plane, [world.namespace], log=tmp_path / "operator.log"):
        queues.submit()
        queues.run()
        _take_any_deadline(own_control_plane)
        world.eventually(partial(_change, world, {"runPolicy": {"activeDeadlineSeconds": 0}}))
        world.await_condition(Condition.INVALID)
        assert "activeDeadlineSeconds" in world.condition(Condition.INVALID).message
        assert len(world.pods()) == 2
        queues.stop("gpus", "HoldAndDrain")
        world.await_pods([])
        queues.await_used("gpus", 0)
        assert queues.workload() is None
        assert world.job().status.is_true(Condition.INVALID)
        queues.stop("gpus", "None")
        world.change_spec({"runPolicy": {"activeDeadlineSeconds": None}})
        queues.run(suffix="-r1")


def _change(world: JobWorld, spec: JsonObject) -> None:
    """The API server needs a moment until it goes by another schema."""
    try:
        world.change_spec(spec)
    except ApiError as refused:
        raise AssertionError from refused


def _take_any_deadline(plane: ControlPlane) -> None:
    """Serve the CRD of a newer version, which takes a spec that the operator cannot read."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/distributedtrainingjobs.training.dtj.dev"
    body = plane.api.request("GET", path)
    policy = ("versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties", "runPolicy", "properties")
    deadline = dig(body, "spec", *policy, "activeDeadlineSeconds")
    assert isinstance(deadline, dict)
    del deadline["minimum"]
    plane.api.request("PUT", path, body)


def _names(world: JobWorld, version: str) -> None:
    message = world.condition(Condition.INVALID, version).message
    assert "knows (kueue.x-k8s.io/v1beta2): install a version" in message
    assert f"found: kueue.x-k8s.io/{version})" in message


def _workloads(version: str) -> JsonObject:
    """The CRD of Workloads that serves this version alone, with the schema of another."""
    path = binaries.assets_of(KUEUE) / "kueue.x-k8s.io_workloads.yaml"
    body: JsonObject = yaml.safe_load(path.read_text())
    spec = object_at(body, "spec")
    versions = spec["versions"]
    assert isinstance(versions, list)
    spec["versions"] = [
        {**dict(versions[-1]), "name": name, "served": name == version, "storage": name == "v1beta3"}  # type: ignore[arg-type]
        for name in ("v1beta1", "v1beta3")
    ]
    return body
