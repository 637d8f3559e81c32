"""Jobs that make the operator use each of its rights."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from builders import manifest
from dtj.api.json import JsonObject, dig, object_at, objects
from dtj.api.kueue_labels import QUEUE
from dtj.api.names import Annotation, Label
from support import gang_schedulers
from support.gang_schedulers import COSCHEDULING, KUEUE, NATIVE, VOLCANO, Groups
from support.job_world import JobWorld
from support.waiting import eventually


def live_through_everything(world: JobWorld) -> None:
    """Jobs that make the operator use each of its rights."""
    roles = {"chief": 1, "worker": 1, "ps": 1}
    storage: JsonObject = {"claimTemplate": {"storage": "1Gi"}}
    world.apply(manifest("done", strategy="ParameterServer", roles=roles, checkpoint=storage))
    world.await_pods(["chief-0", "worker-0", "ps-0"], "done")
    # A chief that lost a peer: all start again.
    world.end_pod("done-chief-0", exit_code=75)
    world.await_pods(["chief-0", "chief-0-r1", "worker-0-r1", "ps-0-r1"], "done")
    world.end_pod("done-chief-0-r1", exit_code=0)
    world.await_state("Succeeded", "done")
    # A job that is suspended twice: the second time the same words become a count. And one that is not kept.
    for times in (1, 2):
        world.apply(manifest("paused", runPolicy={"suspend": False}))
        eventually(lambda: _is_there(world.pods("paused"), 2))
        world.apply(manifest("paused", runPolicy={"suspend": True}))
        eventually(partial(_counted, world, "Suspended", times))
        eventually(lambda: _is_there(world.pods("paused"), 0))
        eventually(lambda: _is_there(world.services("paused"), 0))
    world.apply(manifest("brief", roles={"worker": 1}, runPolicy={"ttlSecondsAfterFinished": 0}))
    world.await_pods(["worker-0"], "brief")
    world.end_pod("brief-worker-0", exit_code=0)
    eventually(lambda: _is_gone(world, "brief"))
    # Objects of others that have the names which jobs want.
    others: list[JsonObject] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}]}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "c-worker-0"},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "d-checkpoint"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]
    world.apply({"apiVersion": "v1", "kind": "List", "items": list(others)})
    for name in ("b", "c"):
        world.apply(manifest(name, roles={"worker": 1}))
    world.apply(manifest("d", roles={"worker": 1}, checkpoint=storage))
    for name in ("b", "c", "d"):
        eventually(partial(_has_reason, world, name, "NameTaken"))


def live_through_network_policies(world: JobWorld) -> None:
    """Jobs whose NetworkPolicy is somebody else's at first, is not as it should be, and goes with the job's end."""
    policy: JsonObject = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "closed"},
        "spec": {"podSelector": {}},
    }
    world.apply(policy)
    world.apply(manifest("closed", roles={"worker": 1}))
    eventually(partial(_has_reason, world, "closed", "NameTaken"))
    assert _policy(world, "closed", "{.metadata.ownerReferences}") == ""
    world.plane.kubectl("delete", "networkpolicy", "closed", "-n", world.namespace)
    world.await_pods(["worker-0"], "closed")
    uid = str(dig(world.pods("closed")["closed-worker-0"], "metadata", "labels", Label.JOB_UID))
    assert _policy(world, "closed", "{.spec.podSelector.matchLabels}") == f'{{"{Label.JOB_UID}":"{uid}"}}'
    digest = _policy(world, "closed", _DIGEST)
    world.plane.kubectl(
        "annotate", "networkpolicy", "closed", "-n", world.namespace, f"{Annotation.POLICY_DIGEST}=x", "--overwrite"
    )
    eventually(partial(_has_digest, world, "closed", digest))
    world.end_pod("closed-worker-0", exit_code=0)
    world.await_state("Succeeded", "closed")
    eventually(partial(_has_no_policy, world, "closed"))


def live_through_gangs(world: JobWorld, *, flavors: bool) -> None:
    """One job for each scheduler, whose name somebody else's object has at first."""
    gang_schedulers.install(world.plane)
    gang_schedulers.flavor(world.plane, "spot", node_labels={"pool": "spot"})
    native_spec: JsonObject = {"podGroups": [{"name": "job", "policy": {"basic": {}}}]}
    for gang, groups, kind, spec in (
        ("Volcano", Groups(world, VOLCANO, "podgroups"), "PodGroup", {}),
        ("Coscheduling", Groups(world, COSCHEDULING, "podgroups"), "PodGroup", {}),
        ("Native", Groups(world, NATIVE, "workloads"), "Workload", native_spec),
        ("Kueue", Groups(world, KUEUE, "workloads"), "Workload", {}),
    ):
        name = gang.lower()
        groups.create({"apiVersion": groups.version, "kind": kind, "metadata": {"name": name}, "spec": spec})
        world.apply(_queued(name, "team-a") if gang == "Kueue" else _in_gang(name, gang))
        eventually(partial(_has_reason, world, name, "NameTaken"))
        groups.delete(name)
        eventually(partial(_is_ours, groups, name))
        if gang == "Kueue":
            # Another queue needs another Workload: the first one is deleted.
            world.apply(_queued(name, "team-b"))
            eventually(partial(_is_in_queue, groups, name, "team-b"))
            groups.admit(name, flavor="spot" if flavors else None)
            world.await_pods(["worker-0"], name)
            groups.evict(name, message="preempted")
            eventually(partial(_gave_back, groups, name))
            groups.admit(name, flavor="spot" if flavors else None)
            world.await_pods(["worker-0-r1"], name)
            world.end_pod(f"{name}-worker-0-r1", exit_code=0)
        else:
            world.await_pods(["worker-0"], name)
            world.end_pod(f"{name}-worker-0", exit_code=0)
        world.await_state("Succeeded", name)
        if gang == "Kueue":
            eventually(partial(_is_finished, groups, name))
        else:
            groups.await_none(name)


def _in_gang(name: str, gang: str) -> JsonObject:
    return manifest(name, roles={"worker": 1}, runPolicy={"scheduling": {"gang": gang}})


def _queued(name: str, queue: str) -> JsonObject:
    """By Kueue's label, which can be changed while the job waits."""
    body = manifest(name, roles={"worker": 1})
    object_at(body, "metadata")["labels"] = {QUEUE: queue}
    return body


_DIGEST = "{.metadata.annotations." + Annotation.POLICY_DIGEST.replace(".", r"\.") + "}"


def _policy(world: JobWorld, name: str, path: str) -> str:
    asked = ("get", "networkpolicy", name, "-n", world.namespace, "--ignore-not-found", "-o", f"jsonpath={path}")
    return world.plane.kubectl(*asked).stdout


def _has_digest(world: JobWorld, name: str, digest: str) -> None:
    assert digest
    assert _policy(world, name, _DIGEST) == digest


def _has_no_policy(world: JobWorld, name: str) -> None:
    assert _policy(world, name, "{.metadata.name}") == ""


def _is_ours(groups: Groups, name: str) -> None:
    assert dig(groups.get(name) or {}, "metadata", "ownerReferences", 0, "name") == name


def _is_in_queue(groups: Groups, name: str, queue: str) -> None:
    assert dig(groups.get(name) or {}, "spec", "queueName") == queue


def _is_finished(groups: Groups, name: str) -> None:
    conditions = objects(dig(groups.get(name) or {}, "status", "conditions"))
    assert ("Finished", "True") in [(each["type"], each["status"]) for each in conditions]


def _gave_back(groups: Groups, name: str) -> None:
    assert dig(groups.get(name) or {}, "status", "admission") is None


def _counted(world: JobWorld, reason: str, times: int) -> None:
    counts = [dig(event, "series", "count") or 1 for event in world.events(reason)]
    assert counts == [times]


def _has_reason(world: JobWorld, name: str, reason: str) -> None:
    assert world.job(name).status.reason == reason


def _is_there(found: Mapping[str, JsonObject], number: int) -> None:
    assert len(found) == number


def _is_gone(world: JobWorld, name: str) -> None:
    found = world.plane.kubectl("get", "dtj", name, "-n", world.namespace, "--ignore-not-found", "-o", "name")
    assert found.stdout == ""
