"""Jobs that make the operator use each of its rights."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bad_tfjobs import tfjob
from builders import CLAIM_TEMPLATE, manifest
from dtj.api import names
from dtj.api.json import JsonObject, dig, object_at, objects, text
from dtj.api.kueue import PREBUILT_WORKLOAD, PRIORITY_CLASS, QUEUE
from dtj.api.names import Annotation, Condition, Label
from support import gang_schedulers
from support.gang_schedulers import COSCHEDULING, KUEUE, VOLCANO, Groups
from support.job_world import JobWorld
from support.slots import Slots
from support.status_port import status_port
from support.waiting import eventually_equal, eventually_true

STORAGE: JsonObject = {"claimTemplate": CLAIM_TEMPLATE}


def live_through_everything(world: JobWorld, *, flavors: bool, tfjobs: bool) -> None:
    """All lives at the same time, because most of each is waiting. ``flavors``: the operator may read ResourceFlavors
    and WorkloadPriorityClasses. ``tfjobs``: it runs TFJobs.

    Raises what the first of them raises that goes wrong.
    """
    gang_schedulers.install(world.plane)
    spot: JsonObject = {"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"pool": "spot"}}}
    high: JsonObject = {"metadata": {"name": "high"}, "value": 100}
    for kind, body in ("ResourceFlavor", spot), ("WorkloadPriorityClass", high):
        world.plane.apply({"apiVersion": KUEUE, "kind": kind, **body})
    lives: list[Callable[[JobWorld], None]] = [
        _restarts,
        _is_suspended_twice,
        _is_not_kept,
        _loses_a_member,
        _finds_its_name_taken,
        waits_for_a_volume,
        live_through_network_policies,
        *(partial(_is_in_gang, gang=gang) for gang in ("Volcano", "Coscheduling")),
        partial(_is_in_kueue, flavors=flavors),
        _is_a_copy_of_another_cluster,
        *([_is_a_tfjob] if tfjobs else []),
    ]
    with ThreadPoolExecutor(len(lives)) as threads:
        for done in [threads.submit(life, world) for life in lives]:
            done.result()


def _restarts(world: JobWorld) -> None:
    """A chief that lost a peer: all start again."""
    roles = {"chief": 1, "worker": 1, "ps": 1}
    world.apply(manifest("done", strategy="ParameterServer", roles=roles, checkpoint=STORAGE))
    world.await_pods(["chief-0", "worker-0", "ps-0"], "done")
    world.end_pod("done-chief-0", exit_code=75)
    world.await_pods(["chief-0", "chief-0-r1", "worker-0-r1", "ps-0-r1"], "done")
    world.end_pod("done-chief-0-r1", exit_code=0)
    world.await_state("Succeeded", "done")


def _is_suspended_twice(world: JobWorld) -> None:
    """The second time, the same words become a count."""
    for times in (1, 2):
        # A ConfigMap lists the addresses of 40 replicas.
        world.apply(manifest("paused", roles={"worker": 40}, runPolicy={"suspend": False}))
        eventually_true(lambda: len(world.pods("paused")) == 40)
        world.apply(manifest("paused", roles={"worker": 40}, runPolicy={"suspend": True}))
        eventually_equal(lambda: [dig(each, "series", "count") or 1 for each in world.events("Suspended")], [times])
        eventually_true(lambda: not world.pods("paused") and not world.services("paused"))


def _is_not_kept(world: JobWorld) -> None:
    """The job is deleted as soon as it has ended."""
    world.apply(manifest("brief", roles={"worker": 1}, runPolicy={"ttlSecondsAfterFinished": 0}))
    world.await_pods(["worker-0"], "brief")
    world.end_pod("brief-worker-0", exit_code=0)
    eventually_true(lambda: "brief" not in [dig(job, "metadata", "name") for job in world.jobs()])


def _loses_a_member(world: JobWorld) -> None:
    """An elastic job whose launchers exchange the members is scaled down: those that stay are told."""
    with status_port({"phase": "Training", "step": 1, "world": 0}) as address:
        world.begin("told", elastic={"maxReplicas": 2})
        world.run_pod("told-worker-0", ip=address)
        world.run_pod("told-worker-1")
        world.await_state("Running", "told")
        eventually_equal(lambda: (progress := world.job("told").status.progress) and progress.world, 0)
        world.change_spec({"replicaSpecs": {"worker": {"replicas": 1}}}, "told")
        world.await_pods(["worker-0"], "told")


def _is_a_tfjob(world: JobWorld) -> None:
    """It is deleted as soon as it has ended."""
    at, name = f"/namespaces/{world.namespace}", "brief-tfjob"

    def there(path: str) -> bool:
        listed = objects(world.api.request("GET", path).get("items"))
        return name in {text(dig(each, "metadata", "name")).removesuffix("-worker-0") for each in listed}

    world.apply(tfjob(name, run_policy={"ttlSecondsAfterFinished": 0}))
    eventually_true(lambda: there(f"/api/v1{at}/pods"))
    world.end_pod(f"{name}-worker-0", exit_code=0)
    eventually_true(lambda: not there(f"/apis/kubeflow.org/v1{at}/tfjobs"))


def _finds_its_name_taken(world: JobWorld) -> None:
    """Objects of others have the names which jobs want."""
    claim: JsonObject = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.create("services", {"metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}]}})
    world.create("pods", {"metadata": {"name": "c-worker-0"}, "spec": {"containers": [{"name": "a", "image": "a"}]}})
    world.create("persistentvolumeclaims", {"metadata": {"name": "d-checkpoint"}, "spec": claim})
    for name in ("b", "c"):
        world.apply(manifest(name, roles={"worker": 1}))
    world.apply(manifest("d", roles={"worker": 1}, checkpoint=STORAGE))
    for name in ("b", "c", "d"):
        world.await_reason("NameTaken", name)


def waits_for_a_volume(world: JobWorld) -> None:
    """A pod has a node and does not start. Its status is silent; an event of the kubelet says why."""
    world.apply(manifest("waits", roles={"worker": 1}))
    world.await_pods(["worker-0"], "waits")
    node = Slots(world.plane, f"node-of-{world.namespace}")
    node.create(1)  # the garbage collector takes pods away from a node that is not there
    target: JsonObject = {"kind": "Node", "name": node.name}
    world.create("pods/waits-worker-0/binding", {"metadata": {"name": "waits-worker-0"}, "target": target})
    pod = world.pods("waits")["waits-worker-0"]
    about: JsonObject = {"kind": "Pod", "namespace": world.namespace, "name": "waits-worker-0"}
    event: JsonObject = {
        "metadata": {"name": "waits-worker-0.1"},
        "involvedObject": {**about, "uid": dig(pod, "metadata", "uid")},
        "type": "Warning",
        "reason": "FailedAttachVolume",
        "message": 'Multi-Attach error for volume "pvc-1"',
        "lastTimestamp": dig(pod, "metadata", "creationTimestamp"),
        "source": {"component": "attachdetach-controller"},
    }
    world.create("events", event)
    words = 'Multi-Attach error for volume "pvc-1" (FailedAttachVolume)'
    eventually_true(lambda: words in world.condition(Condition.PODS_READY, "waits").message)


def live_through_network_policies(world: JobWorld) -> None:
    """A job whose NetworkPolicy is somebody else's at first, is not as it should be, and goes with the job's end."""
    path = f"/apis/networking.k8s.io/v1/namespaces/{world.namespace}/networkpolicies"

    def policy(*where: str) -> object:
        return dig(world.api.find(f"{path}/closed"), *where)

    world.api.request("POST", path, {"metadata": {"name": "closed"}, "spec": {"podSelector": {}}})
    world.apply(manifest("closed", roles={"worker": 1}))
    world.await_reason("NameTaken", "closed")
    assert policy("metadata", "ownerReferences") is None
    world.api.request("DELETE", f"{path}/closed")
    world.await_pods(["worker-0"], "closed")
    assert policy("spec", "podSelector", "matchLabels") == {Label.JOB_UID: world.job("closed").uid}
    at = ("metadata", "annotations", Annotation.POLICY_DIGEST)
    digest = policy(*at)
    assert digest
    world.api.request("PATCH", f"{path}/closed", {"metadata": {"annotations": {Annotation.POLICY_DIGEST: "x"}}})
    eventually_equal(lambda: policy(*at), digest)
    world.end_pod("closed-worker-0", exit_code=0)
    world.await_state("Succeeded", "closed")
    eventually_equal(policy, None)


def _is_in_gang(world: JobWorld, *, gang: str) -> None:
    """A job of a scheduler, whose name somebody else's object has at first."""
    groups = Groups(world, {"Volcano": VOLCANO, "Coscheduling": COSCHEDULING}[gang], "podgroups")
    name = gang.lower()
    _finds_the_gangs_name_taken(world, groups, _in_gang(name, gang), kind="PodGroup")
    world.await_pods(["worker-0"], name)
    world.end_pod(f"{name}-worker-0", exit_code=0)
    world.await_state("Succeeded", name)
    groups.await_none(name)


def _is_in_kueue(world: JobWorld, *, flavors: bool) -> None:
    """A job that waits in one queue and then in another, is admitted, evicted and admitted again."""
    groups, name, flavor = Groups(world, KUEUE, "workloads"), "kueue", "spot" if flavors else None
    _finds_the_gangs_name_taken(world, groups, _queued(name, "team-a", has_priority=flavors), kind="Workload")
    # Another queue needs another Workload: the first one is deleted.
    world.apply(_queued(name, "team-b", has_priority=flavors))
    eventually_true(lambda: dig(groups.get(name) or {}, "spec", "queueName") == "team-b")
    if flavors:
        groups.keep_out(name, message="ClusterQueue all is inactive")
        eventually_true(lambda: "is inactive" in world.condition(Condition.SUSPENDED, name).message)
    groups.admit(name, flavor=flavor)
    world.await_pods(["worker-0"], name)
    groups.evict(name, message="preempted")
    eventually_true(lambda: dig(groups.get(name) or {}, "status", "admission") is None)
    groups.admit(name, flavor=flavor)
    world.await_pods(["worker-0-r1"], name)
    world.end_pod(f"{name}-worker-0-r1", exit_code=0)
    world.await_state("Succeeded", name)
    eventually_true(lambda: _is_finished(groups, name))


def _is_a_copy_of_another_cluster(world: JobWorld) -> None:
    """MultiKueue makes the Workload, of a job with the labels of ours, then the job. The job becomes the owner."""
    groups, name = Groups(world, KUEUE, "workloads"), "copy"
    labels: JsonObject = {Label.APP_MANAGED_BY: names.MANAGER, Label.JOB_NAME: name}
    annotations: JsonObject = {Annotation.GANG_SIZE: "worker=1;min=1"}
    metadata: JsonObject = {"name": name, "labels": labels, "annotations": annotations}
    groups.create({"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": {"queueName": "team-a"}})
    groups.admit(name)
    body = manifest(name, roles={"worker": 1}, runPolicy={"scheduling": {"gang": "Kueue", "queue": "team-a"}})
    object_at(body, "metadata")["annotations"] = {PREBUILT_WORKLOAD: name}
    world.apply(body)
    eventually_true(lambda: dig(groups.get(name) or {}, "metadata", "ownerReferences", 0, "name") == name)
    world.await_pods(["worker-0"], name)


def _finds_the_gangs_name_taken(world: JobWorld, groups: Groups, job: JsonObject, *, kind: str) -> None:
    """The job gets its PodGroup or Workload when somebody else's of that name is gone."""
    name = str(dig(job, "metadata", "name"))
    groups.create({"apiVersion": groups.version, "kind": kind, "metadata": {"name": name}, "spec": {}})
    world.apply(job)
    world.await_reason("NameTaken", name)
    groups.delete(name)
    eventually_true(lambda: dig(groups.get(name) or {}, "metadata", "ownerReferences", 0, "name") == name)


def _in_gang(name: str, gang: str) -> JsonObject:
    return manifest(name, roles={"worker": 1}, runPolicy={"scheduling": {"gang": gang}})


def _queued(name: str, queue: str, *, has_priority: bool) -> JsonObject:
    """By Kueue's labels, which can be changed while the job waits."""
    body = manifest(name, roles={"worker": 1})
    object_at(body, "metadata")["labels"] = {QUEUE: queue, **({PRIORITY_CLASS: "high"} if has_priority else {})}
    return body


def _is_finished(groups: Groups, name: str) -> bool:
    conditions = objects(dig(groups.get(name) or {}, "status", "conditions"))
    return ("Finished", "True") in [(each["type"], each["status"]) for each in conditions]
