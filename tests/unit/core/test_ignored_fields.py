"""Each field of a manifest is obeyed, refused, or named in an event as one that has no effect."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from bad_tfjobs import role
from builders import job
from dtj.api.json import JsonObject, dig, fields_of
from dtj.api.names import Reason
from dtj.api.spec import Gang
from dtj.core.actions import Create
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.observed import CreationRefusal, GangApi
from support.played_tfjobs import change, tfjob, world_of
from world import World

ASKED: JsonObject = {
    "minAvailable": 1,
    "minResources": {"cpu": "2"},
    "queue": "research",
    "priorityClass": "high",
    "scheduleTimeoutSeconds": 60,
}


def told(world: World) -> list[str]:
    return [event.message for event in world.events if event.reason is Reason.FIELD_IGNORED]


def started(gang: Gang, policy: JsonObject = ASKED) -> World:
    """A TFJob of two workers under an operator that uses this scheduler."""
    world = world_of(tfjob(runPolicy={"schedulingPolicy": policy}), gang_of_tfjobs=gang)
    world.installed, world.gangs = tuple(api for api in APIS if api.gang is gang), None
    return world.settle()


@pytest.mark.parametrize("gang", [Gang.VOLCANO, Gang.COSCHEDULING])
def test_what_a_tfjob_says_that_its_pods_need_is_what_their_group_needs(gang: Gang) -> None:
    (group,) = started(gang).gang_manifests
    assert dig(group, "spec", "minResources") == {"cpu": "2"}


def test_a_group_is_made_again_for_other_needs_when_a_job_is_resumed() -> None:
    world = started(Gang.VOLCANO)
    for suspend, cpu in (True, "2"), (False, "3"):
        policy: JsonObject = {"suspend": suspend, "schedulingPolicy": {**ASKED, "minResources": {"cpu": cpu}}}
        change(world, tfjob(runPolicy=policy))
        world.settle_deletions()
        world.settle()
    assert dig(world.gang_manifests[-1], "spec", "minResources") == {"cpu": "3"}
    assert len(world.taken(Create, GangApi)) == 2


@pytest.mark.parametrize(
    ("gang", "ignored"),
    [
        (Gang.NONE, [*ASKED]),
        (Gang.VOLCANO, ["scheduleTimeoutSeconds"]),
        (Gang.COSCHEDULING, ["queue", "priorityClass"]),
        (Gang.NATIVE, ["minResources", "queue", "scheduleTimeoutSeconds"]),
    ],
)
def test_what_the_scheduler_of_a_tfjob_does_not_read_is_named_once(gang: Gang, ignored: list[str]) -> None:
    world = started(gang)
    world.run_all()
    world.settle()
    (message,) = told(world)
    named = [field for field in ASKED if f"spec.runPolicy.schedulingPolicy.{field}" in message]
    assert named == ignored
    why = "set tfjob.gangScheduler of the operator's chart" if gang is Gang.NONE else f"which {gang} does not read"
    assert message.endswith(why)


def test_a_job_that_gets_all_it_asks_for_is_told_nothing() -> None:
    assert told(started(Gang.VOLCANO, {"minAvailable": 2, "queue": "a", "minResources": {"cpu": "2"}})) == []
    assert told(world_of(tfjob()).start()) == []
    assert told(World(job()).start()) == []


def test_the_priority_class_of_a_tfjob_is_not_named_where_kueue_itself_reads_it() -> None:
    body = tfjob(runPolicy={"schedulingPolicy": {"priorityClass": "high"}})
    fields_of(body["metadata"])["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    assert told(world_of(body).settle()) == []


def test_it_is_told_also_if_the_first_pods_are_refused() -> None:
    world = world_of(tfjob(runPolicy={"schedulingPolicy": ASKED}))
    world.refusal = CreationRefusal("mnist-worker-0", "Forbidden", "exceeded quota", world.now)
    world.settle()
    assert len(told(world)) == 1


def test_a_host_name_of_a_template_is_named_in_both_kinds_of_jobs() -> None:
    worker = role(1)
    fields_of(fields_of(worker["template"])["spec"])["hostname"] = "mine"
    assert told(world_of(tfjob({"Worker": worker})).settle()) == [
        "no effect: spec.tfReplicaSpecs.Worker.template.spec.hostname, which is the name of the replica"
    ]
    template = {"spec": {"subdomain": "mine", "containers": [{"name": "trainer", "image": "x"}]}}
    assert told(World(job(template=template)).settle()) == [
        "no effect: spec.template.spec.subdomain, which is the name of the replica"
    ]


def test_what_a_container_asks_for_of_a_resource_that_the_accelerator_counts_is_named() -> None:
    def said(accelerator: JsonObject, **resources: JsonObject) -> list[str]:
        template = {"spec": {"containers": [{"name": "trainer", "image": "x", "resources": resources}]}}
        return told(
            World(job(template=template, accelerator=accelerator, roles={"worker": 2, "evaluator": 1})).settle()
        )

    four: JsonObject = {"nvidia.com/gpu": 4, "cpu": "8"}
    line = "no effect: nvidia.com/gpu: 4 in the resources of worker, because spec.accelerator gives each of its pods 2"
    assert said({"profile": "nvidia", "count": 2}, limits=four) == [line]
    assert said({"profile": "nvidia", "count": 2}, limits={"nvidia.com/gpu": "2"}, requests=four) == [line]
    assert said({"profile": "nvidia"}, limits=four) == []
    assert said({"profile": "nvidia", "count": 4}, limits=four, requests={"nvidia.com/gpu": "4"}) == []
    assert said({"profile": "eks-p5-efa", "count": 8}, limits={"vpc.amazonaws.com/efa": 4}) == [
        "no effect: vpc.amazonaws.com/efa: 4 in the resources of worker, because spec.accelerator gives each of its "
        "pods 32"
    ]


def test_chips_of_a_role_that_are_not_those_of_its_topology_are_named() -> None:
    worker: JsonObject = {
        "resources": {"limits": {"google.com/tpu": 8}},
        "accelerator": {"profile": "tpu-v5e", "topology": "2x2"},
    }
    assert told(World(job(strategy="TPU", replicaSpecs={"worker": worker})).settle()) == [
        "no effect: google.com/tpu: 8 in the resources of worker, because spec.replicaSpecs.worker.accelerator gives "
        "each of its pods 4"
    ]


@pytest.mark.parametrize(
    ("gang", "ignored"),
    [
        (Gang.NONE, ["minAvailable", "timeoutSeconds"]),
        (Gang.VOLCANO, ["timeoutSeconds"]),
        (Gang.COSCHEDULING, []),
        (Gang.NATIVE, ["timeoutSeconds"]),
    ],
)
def test_what_the_scheduler_of_our_own_jobs_does_not_read_is_named(gang: Gang, ignored: list[str]) -> None:
    scheduling = {"gang": str(gang), "minAvailable": 1, "timeoutSeconds": 60, "priorityClassName": "high"}
    made = job(roles={"worker": 2}, runPolicy={"scheduling": scheduling})
    world = World(made, installed=APIS).settle()
    said = told(world)
    assert [field for field in scheduling if any(f"spec.runPolicy.scheduling.{field}" in words for words in said)] == (
        ignored
    )


OBEYED = {
    "enableDynamicWorker",
    "successPolicy",
    "runPolicy.activeDeadlineSeconds",
    "runPolicy.backoffLimit",
    "runPolicy.cleanPodPolicy",
    "runPolicy.managedBy",
    "runPolicy.suspend",
    "runPolicy.ttlSecondsAfterFinished",
    "tfReplicaSpecs.*.replicas",
    "tfReplicaSpecs.*.restartPolicy",
    "tfReplicaSpecs.*.template",
    *(f"runPolicy.schedulingPolicy.{field}" for field in ASKED),  # or named, as above
}


def test_kubeflows_tfjob_has_no_field_that_is_not_thought_of() -> None:
    crd = json.loads(files("dtj.api.tfjob").joinpath("crd.json").read_text())
    spec = dig(crd, "spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec")
    assert set(_fields(fields_of(spec))) | {"tfReplicaSpecs.*.template"} == OBEYED


def _fields(schema: JsonObject, at: str = "") -> list[str]:
    found: list[str] = []
    for name, field in fields_of(schema.get("properties")).items():
        place, each = f"{at}{name}", dig(field, "additionalProperties")
        if fields_of(dig(each, "properties")):
            found += _fields(fields_of(each), f"{place}.*.")
        elif fields_of(dig(field, "properties")):
            found += _fields(fields_of(field), f"{place}.")
        else:
            found.append(place)
    return found
