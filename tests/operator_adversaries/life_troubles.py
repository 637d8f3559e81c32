"""What happens to a job: each trouble as a function that begins it, and returns what ends it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from builders import at
from dtj.api.json import JsonObject, apply_merge_patch, dig, fields_of, objects, text
from dtj.api.kueue import QUEUE
from dtj.api.spec import Gang
from dtj.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, TooManyRequests, Unavailable
from dtj.kube.gateway import CLAIMS, CONFIG_MAPS, LOCAL_QUEUES, NETWORK_POLICIES, PODS, SERVICES, WORKLOADS, Resource
from operator_adversaries.life_cluster import EXPLAINS_WITHIN, LONGEST, NAME, SHAPES, LifeCluster, conditions_of
from support.campaigns.model_api import LATENCY_SECONDS
from support.campaigns.model_cluster import STOP_SECONDS
from support.fake_gateway import Call
from support.gang_worlds import kueue_condition
from support.virtual_time import loop_time

FOREIGN: Final = "example.com/Foreign"

End = Callable[[], None] | None
"""What ends a trouble, if it lasts."""


def _is_refused(cluster: LifeCluster, rng: random.Random) -> End:
    """Rights are revoked, a webhook or a quota refuses, or the server fails: for some kinds and verbs."""
    status, kind = rng.choice(
        (
            (403, Forbidden),
            (403, Forbidden),
            (422, Invalid),
            (409, Conflict),
            (429, TooManyRequests),
            (500, Unavailable),
        )
    )
    plurals = {each.plural for each in rng.sample(cluster.all_kinds, rng.choice((1, 1, 2, len(cluster.all_kinds))))}
    verbs = rng.choice((("create",), ("delete",), ("patch",), ("create", "patch", "delete"), ("list", "watch"), ()))
    if not verbs or "watch" in verbs:
        cluster.api.release(plurals, lost=True)

    def refusal(call: Call) -> ApiError | None:
        if call.plural not in plurals or call.verb not in (verbs or (call.verb,)):
            return None
        told = call.verb in ("create", "patch", "delete") and kind is not Conflict  # which passes by itself as a rule
        if call.plural in (cluster.jobs.plural, WORKLOADS.plural) or not told:
            cluster.mute_at = loop_time()
        else:
            cluster.refused_at = loop_time()
        return kind(f"cannot {call.verb} {call.plural}", status=status, reason=kind.__name__)

    return cluster.refuse(refusal)


def _is_held(cluster: LifeCluster, rng: random.Random) -> End:
    """Finalizers of others."""
    return cluster.api.holds(rng.choice(cluster.all_kinds))


def _scheduler_is_removed(cluster: LifeCluster, rng: random.Random) -> End:
    """With all objects of its API."""
    if cluster.gang is None:
        return None
    gone = {cluster.gang.plural, *([LOCAL_QUEUES.plural] if cluster.gang == WORKLOADS else [])}
    resource = cluster.gang
    for name in cluster.api.names(resource):
        cluster.api.remove(resource, name)
    cluster.api.installed.discard(resource)
    cluster.api.release([resource.plural], lost=True)
    cluster.mute_at = loop_time()
    words = "the server could not find the requested resource"
    end = cluster.refuse(lambda call: NotFound(words, status=404) if call.plural in gone else None)

    # It may be gone for good where nobody needs it. A job stays in the queue that it was given.
    open_ = cluster.alive and not cluster.status().start_time and not dig(cluster.body, "metadata", "labels", QUEUE)
    if cluster.shape == SHAPES["beside kueue"] and open_ and rng.random() < 0.5:
        cluster.removed = True

    def back() -> None:
        if cluster.removed:
            return
        cluster.api.installed.add(resource)
        end()

    return back


def _operator_dies(cluster: LifeCluster, rng: random.Random) -> End:
    cluster.operator_clock = rng.choice((0.0, 0.0, 7200.0, -7200.0, -60.0))
    cluster.meanwhile(cluster.operator_dies())
    return None


def _operators_clock_is_set(cluster: LifeCluster, rng: random.Random) -> End:
    if cluster.operator is not None:
        cluster.operator.ahead += rng.choice((-7200.0, -60.0, 60.0, 7200.0))
    return None


def _all_clocks_are_set(cluster: LifeCluster, rng: random.Random) -> End:
    """Those of the API server and of the operator."""
    step = rng.choice((-3600.0, -60.0, 60.0, 3600.0))
    cluster.tampered = True
    cluster.api.ahead += step
    cluster.operator_clock = cluster.api.ahead
    if cluster.operator is not None:
        cluster.operator.ahead += step
    return None


def _clocks_of_nodes_are_set(cluster: LifeCluster, rng: random.Random) -> End:
    cluster.node_clocks = {"worker-0": rng.choice((-7200.0, 7200.0)), "": rng.choice((0.0, -7200.0, 7200.0))}
    return lambda: cluster.node_clocks.clear()


def _is_suspended(cluster: LifeCluster, rng: random.Random) -> End:
    """And perhaps gets another image before it is resumed."""
    if not cluster.alive:
        return None
    cluster.change({"runPolicy": {"suspend": True}})

    def resumes() -> None:
        if not cluster.alive:
            return
        if not cluster.shape.is_tfjob and rng.random() < 0.5:
            container: JsonObject = {"name": "trainer", "image": "example/trainer:2"}
            cluster.change({"template": {"spec": {"containers": [container]}}})
        cluster.change({"runPolicy": {"suspend": False}})

    return resumes


def _is_scaled(cluster: LifeCluster, rng: random.Random) -> End:
    if cluster.alive and "elastic" in cluster.shape.fields:
        cluster.change({"replicaSpecs": {"worker": {"replicas": rng.randrange(1, 5)}}})
    return None


def _is_labelled(cluster: LifeCluster, rng: random.Random) -> End:
    """Also moves it to another queue, if it is in one."""
    if cluster.alive:
        movable = cluster.shape.gang is Gang.KUEUE and not cluster.removed and "runPolicy" not in cluster.shape.fields
        queue: JsonObject = {QUEUE: rng.choice(("team-a", "team-b"))} if movable else {}
        cluster.api.merge(cluster.jobs, NAME, {"metadata": {"labels": {"team": "vision", **queue}}})
    return None


def _is_kept_for_longer(cluster: LifeCluster, rng: random.Random) -> End:
    if cluster.alive:
        cluster.change({"runPolicy": {"ttlSecondsAfterFinished": 10**6 + rng.randrange(100)}})
    return None


def _gets_conditions(cluster: LifeCluster, rng: random.Random) -> End:
    """Others write as many as fit."""
    if not cluster.alive or cluster.shape.is_tfjob:
        return None
    there = objects(dig(cluster.body, "status", "conditions"))
    cluster.foreign = [f"{FOREIGN}{index}" for index in range(rng.choice((1, 20)))]
    kept = [one for one in there if text(one["type"]) not in cluster.foreign]
    new = [{**kueue_condition(each), "lastTransitionTime": at(loop_time())} for each in cluster.foreign]
    cluster.api.merge(cluster.jobs, NAME, {"status": {"conditions": [*kept, *new]}})
    return None


def _status_is_restored(cluster: LifeCluster, rng: random.Random) -> End:
    """From a backup of this job, or it is wiped out."""
    if cluster.alive:
        cluster.tampered, cluster.foreign = True, []
        # One of a TFJob without our record is another controller's, and the job is left alone.
        known = [status for status in _old_statuses(cluster) if status or not cluster.shape.is_tfjob]
        cluster.api.put(cluster.jobs, {**cluster.body, "status": rng.choice(known or [{}])})
    return None


def _old_statuses(cluster: LifeCluster) -> list[JsonObject]:
    """Of a job that has ended, those alone that say so."""
    found = [fields_of(line.body.get("status")) for line in cluster.api.history(cluster.jobs)]
    ended = cluster.status().terminal
    return [status for status in found if cluster.form.record(status).terminal is ended]


def _is_created_again(cluster: LifeCluster, rng: random.Random) -> End:
    """Perhaps from a backup, with a status of another UID."""
    if cluster.alive:
        old = rng.choice(_old_statuses(cluster))
        cluster.tampered, cluster.foreign = True, []
        cluster.delete(cluster.jobs)
        if not cluster.there(cluster.jobs):
            cluster.begin(old)
    return None


def _pod_is_deleted(cluster: LifeCluster, rng: random.Random) -> End:
    if pods := sorted(cluster.live_pods()):
        pod = rng.choice(pods)
        rng.choice((cluster.api.end, cluster.api.remove))(PODS, pod)
    return None


def _pods_stop_slowly(cluster: LifeCluster, rng: random.Random) -> End:
    """One is deleted by hand, and nobody listens to SIGTERM."""
    cluster.stop_seconds = rng.choice((60.0, 600.0))
    _pod_is_deleted(cluster, rng)
    return lambda: setattr(cluster, "stop_seconds", STOP_SECONDS)


def _pod_ends(cluster: LifeCluster, rng: random.Random) -> End:
    if pods := sorted(cluster.live_pods()):
        cluster.end_pod(rng.choice(pods).removeprefix(f"{NAME}-"), rng.choice((1, 42, 75, 137, 143)))
    return None


def _nodes_are_full(cluster: LifeCluster, rng: random.Random) -> End:
    cluster.starts = False

    def end() -> None:
        cluster.starts = True
        for pod in cluster.api.names(PODS):
            cluster.start_pod(pod)

    return end


def _is_wrong(cluster: LifeCluster, rng: random.Random) -> End:
    """A TFJob that cannot be run as it is written, until it is corrected."""
    if not cluster.alive or not cluster.shape.is_tfjob:
        return None

    def name(container: str) -> None:
        if cluster.alive:
            template: JsonObject = {"spec": {"containers": [{"name": container, "image": "example/mnist:1"}]}}
            cluster.change({"tfReplicaSpecs": {"Worker": {"template": template}}})

    name("main")
    return lambda: name("tensorflow")


def _is_deactivated(cluster: LifeCluster, rng: random.Random) -> End:
    """In Kueue, by an administrator."""

    def active(value: bool) -> None:
        for name in cluster.api.names(WORKLOADS):
            cluster.api.merge(WORKLOADS, name, {"spec": {"active": value}})
        if not value:
            _is_evicted(cluster, rng)

    active(False)
    return lambda: active(True)


def _object_is_deleted(cluster: LifeCluster, rng: random.Random) -> End:
    kinds = [each for each in (*cluster.all_kinds, CONFIG_MAPS) if each != cluster.jobs and cluster.api.names(each)]
    if kinds:
        resource = rng.choice(kinds)
        cluster.api.end(resource, rng.choice(cluster.api.names(resource)))
    return None


def _queue_is_full(cluster: LifeCluster, rng: random.Random) -> End:
    cluster.full = True
    return lambda: setattr(cluster, "full", False)


def _is_evicted(cluster: LifeCluster, rng: random.Random) -> End:
    for name in cluster.api.names(WORKLOADS):
        states = conditions_of(cluster.api.body(WORKLOADS, name))
        if states.get("Admitted") == "True" and states.get("Finished") != "True":
            kept = objects(dig(cluster.api.body(WORKLOADS, name), "status", "conditions"))
            evicted = {**kueue_condition("Evicted", reason="Preempted"), "lastTransitionTime": at(loop_time())}
            cluster.api.merge(WORKLOADS, name, {"status": {"conditions": [*kept, evicted]}})
    return None


def _webhook_changes_objects(cluster: LifeCluster, rng: random.Random) -> End:
    """As service meshes, policies and cloud providers do."""
    metadata: JsonObject = {
        "labels": {"example.com/mesh": "on"},
        "annotations": {"example.com/injected": "x" * rng.choice((1, 10_000))},
    }
    sidecar: JsonObject = {"name": "mesh", "image": "example/mesh:1"}

    def admitted(resource: Resource, body: JsonObject) -> JsonObject:
        if resource == cluster.jobs:
            return body
        changed = apply_merge_patch(body, {"metadata": metadata})
        if resource == PODS:
            containers = objects(dig(changed, "spec", "containers"))
            places: JsonObject = {"containers": [sidecar, *containers], "nodeSelector": {"pool": "a"}}
            changed = apply_merge_patch(changed, {"spec": places})
        return changed

    cluster.api.admitted = admitted
    return lambda: setattr(cluster.api, "admitted", lambda resource, body: body)


def _name_is_taken(cluster: LifeCluster, rng: random.Random) -> End:
    """By an object of somebody else."""
    names: list[tuple[Resource, str]] = [
        *((PODS, f"{NAME}-{each}") for each in ("worker-0", "worker-1-r1", "chief-0-r2", "tensorboard")),
        (SERVICES, NAME), (SERVICES, f"{NAME}-worker-0"), (NETWORK_POLICIES, NAME), (CLAIMS, f"{NAME}-checkpoint"),
        *([(cluster.gang, NAME)] if cluster.gang is not None else []),
    ]  # fmt: skip
    resource, name = rng.choice(names)
    if cluster.there(resource, name):
        return None
    labels: JsonObject = {key: NAME for key, _, _ in (each.partition("=") for each in cluster.form.selector.split(","))}
    metadata: JsonObject = {"name": name, "uid": f"foreign-{loop_time()}", "labels": rng.choice(({}, labels))}
    cluster.api.put(resource, {"metadata": metadata, "spec": {}})

    def end() -> None:
        if cluster.there(resource, name):
            cluster.api.remove(resource, name)

    return end


def _view_is_late(cluster: LifeCluster, rng: random.Random) -> End:
    """Watches stand still, and perhaps lose what happened meanwhile."""
    plurals = rng.choice((cluster.plurals, (cluster.jobs.plural,), (PODS.plural,)))
    cluster.api.hold(plurals, at=cluster.api.version)
    return lambda: cluster.api.release(plurals, lost=rng.random() < 0.5)


def _answers_are_slow(cluster: LifeCluster, rng: random.Random) -> End:
    cluster.api.latency = rng.choice((0.5, 5.0))
    return lambda: setattr(cluster.api, "latency", LATENCY_SECONDS)


TROUBLES: Final[dict[str, Callable[[LifeCluster, random.Random], End]]] = {
    function.__name__.strip("_").replace("_", " "): function
    for function in (
        _is_refused, _is_held, _scheduler_is_removed, _operator_dies, _operators_clock_is_set, _all_clocks_are_set,
        _clocks_of_nodes_are_set, _is_suspended, _is_scaled, _is_labelled, _is_kept_for_longer, _gets_conditions,
        _status_is_restored, _is_created_again, _pod_is_deleted, _pods_stop_slowly, _pod_ends, _is_wrong,
        _is_deactivated, _nodes_are_full, _object_is_deleted, _queue_is_full, _is_evicted, _webhook_changes_objects,
        _name_is_taken, _view_is_late, _answers_are_slow,
    )
}  # fmt: skip

WORDS: Final[dict[str, tuple[float, tuple[str, ...]]]] = {
    "is refused": (EXPLAINS_WITHIN, ("cannot ",)),
    "name is taken": (EXPLAINS_WITHIN, ("exists", "belongs")),
    "scheduler is removed": (LONGEST, ("serve",)),
}
"""Of which a condition has one, after so many seconds, if the job cannot run for that alone."""
