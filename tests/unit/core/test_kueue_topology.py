"""Pods whose nodes Kueue chooses: what the Workload asks for, and how a pod waits for its node."""

from __future__ import annotations

import pytest

from builders import manifest, stored
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig
from dtj.api.kueue import (
    LAYERS,
    POD_SET_GROUP,
    SLICE_REQUIRED,
    SLICE_SIZE,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_UNCONSTRAINED,
    topology_request,
)
from dtj.api.names import Label
from dtj.core.observed import Phase
from dtj.core.platform import Platform
from dtj.core.validity import problems
from support.gang_worlds import QUEUED, admit, queued
from world import World

RACK = "example.com/rack"


def template(annotations: JsonObject) -> JsonObject:
    container: JsonObject = {"name": "trainer", "image": "example/trainer:1"}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def in_queue(annotations: JsonObject) -> World:
    return queued(roles={"worker": 2}, template=template(annotations))


def admitted(annotations: JsonObject, *, placed: bool) -> World:
    """Kueue has admitted the job, with nodes for its pods or without."""
    story = in_queue(annotations)
    admit(story, placed=placed)
    return story.settle()


@pytest.mark.parametrize(
    ("annotations", "asked"),
    [
        ({}, {}),
        ({TOPOLOGY_REQUIRED: RACK}, {"required": RACK}),
        ({TOPOLOGY_PREFERRED: RACK}, {"preferred": RACK}),
        ({TOPOLOGY_UNCONSTRAINED: "true"}, {"unconstrained": True}),
        ({TOPOLOGY_REQUIRED: RACK, POD_SET_GROUP: "all"}, {"required": RACK, "podSetGroupName": "all"}),
        (
            {SLICE_REQUIRED: RACK, SLICE_SIZE: "2"},
            {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
        ),
    ],
    ids=["none", "required", "preferred", "unconstrained", "group", "slices"],
)
def test_the_annotations_of_the_template_are_the_request_of_the_pod_set(
    annotations: JsonObject, asked: JsonObject
) -> None:
    assert topology_request(template(annotations)) == {"podIndexLabel": Label.INDEX, **asked}


@pytest.mark.parametrize(
    ("annotations", "placed", "marked"),
    [({TOPOLOGY_REQUIRED: RACK}, True, None), ({}, True, "true"), ({}, False, None)],
    ids=["a job that asks for nodes", "a queue of such nodes", "another queue"],
)
def test_a_pod_waits_until_kueue_has_given_it_its_node(
    annotations: JsonObject, *, placed: bool, marked: str | None
) -> None:
    pod = admitted(annotations, placed=placed).manifests["digits-worker-1"]
    assert dig(pod, "spec", "schedulingGates") == ([{"name": "kueue.x-k8s.io/topology"}] if placed else None)
    assert dig(pod, "metadata", "annotations", TOPOLOGY_UNCONSTRAINED) == marked, "which Kueue looks for"
    if placed:
        assert dig(pod, "metadata", "annotations", "kueue.x-k8s.io/workload") == "digits"
        assert dig(pod, "metadata", "labels", "kueue.x-k8s.io/podset") == "worker"
        assert dig(pod, "metadata", "labels", Label.INDEX) == "1"


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (
            {TOPOLOGY_REQUIRED: RACK, TOPOLOGY_PREFERRED: RACK},
            f"{TOPOLOGY_REQUIRED} and {TOPOLOGY_PREFERRED} exclude each other: remove all but one",
        ),
        (
            {TOPOLOGY_REQUIRED: "no level"},
            f"{TOPOLOGY_REQUIRED} must be a level of a Topology, which is the key of a label of nodes",
        ),
        ({TOPOLOGY_UNCONSTRAINED: "maybe"}, f'{TOPOLOGY_UNCONSTRAINED} must be "true" or "false", not \'maybe\''),
        ({SLICE_REQUIRED: RACK}, f"{SLICE_REQUIRED} and {SLICE_SIZE} belong together: set both, or remove both"),
        ({SLICE_REQUIRED: RACK, SLICE_SIZE: "0"}, f"{SLICE_SIZE} must be a number of pods from 1 to 2,147,483,647"),
        (
            {POD_SET_GROUP: "all"},
            f"{POD_SET_GROUP} needs {TOPOLOGY_REQUIRED} or {TOPOLOGY_PREFERRED}: set one of them, or remove it",
        ),
        (
            {TOPOLOGY_REQUIRED: RACK, POD_SET_GROUP: "all", SLICE_REQUIRED: RACK, SLICE_SIZE: "2"},
            f"{POD_SET_GROUP} and {SLICE_REQUIRED} exclude each other: remove one of them",
        ),
        ({LAYERS: "[]"}, f"{LAYERS} is not supported: remove it, or set {SLICE_REQUIRED} and {SLICE_SIZE}"),
    ],
    ids=["two", "level", "boolean", "half a slice", "size", "group", "group of slices", "layers"],
)
def test_annotations_that_kueue_would_refuse_are_named_with_the_remedy(annotations: JsonObject, message: str) -> None:
    body = stored(manifest(runPolicy=QUEUED, template=template(annotations)))
    (problem,) = problems(Job.from_object(body), Platform())
    assert problem.message.startswith(f"spec.template.metadata.annotations: {message}")


def test_outside_of_kueue_they_mean_nothing() -> None:
    body = stored(manifest(template=template({TOPOLOGY_UNCONSTRAINED: "maybe"})))
    assert problems(Job.from_object(body), Platform()) == ()


def test_a_restart_waits_until_the_nodes_are_free() -> None:
    story = admitted({}, placed=True)
    story.all_run()
    story.sees("worker-1", Phase.FAILED, exit_code=137)
    story.advance(60)  # the backoff of the restart
    story.settle()
    assert story.pods["digits-worker-0"].terminating
    assert "digits-worker-1-r1" not in story.pods
    story.settle_deletions()
    assert {"digits-worker-0-r1", "digits-worker-1-r1"} <= set(story.pods)


def test_a_restart_does_not_wait_for_a_pod_whose_grace_period_is_over() -> None:
    story = admitted({}, placed=True)
    story.all_run()
    story.set_pod("worker-1", Phase.FAILED, exit_code=137)
    for _ in range(3):
        story.settle()
        story.advance(60)
    assert story.pods["digits-worker-0"].terminating, "its node is lost"
    assert {"digits-worker-0-r1", "digits-worker-1-r1"} <= set(story.pods)
