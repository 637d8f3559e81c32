"""Model worlds of jobs whose pods are scheduled together, and what Kueue says in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from builders import at, job
from dtj.api.json import JsonObject, objects
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.observed import GangApi, Phase
from world import World

BY_VERSION = {api.api_version: api for api in APIS}
KUEUE = BY_VERSION["kueue.x-k8s.io/v1beta2"]
VOLCANO = BY_VERSION["scheduling.volcano.sh/v1beta1"]
COSCHEDULING = BY_VERSION["scheduling.x-k8s.io/v1alpha1"]
NATIVE = BY_VERSION["scheduling.k8s.io/v1beta1"]


def world(
    *installed: GangApi, roles: dict[str, int] | None = None, elastic: object = None, **scheduling: object
) -> World:
    policy = {"scheduling": scheduling}
    return World(job(roles=roles or {"worker": 3}, runPolicy=policy, elastic=elastic), installed=installed)


def admit(world: World, *, workers: int = 3, placed: bool = False, **flavors: JsonValue) -> None:
    """What Kueue does with a Workload that fits: it has quota for the pods, and nodes if they are ``placed``."""
    nodes: JsonObject = {"topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": []}} if placed else {}
    sets: list[JsonValue] = [
        {"name": name, "flavors": flavors, "count": count, **nodes}
        for name, count in {"chief": 1, "worker": workers, "ps": 1}.items()
    ]
    admission: JsonObject = {"clusterQueue": "all", "podSetAssignments": sets}
    world.kueue_says(
        {"conditions": [kueue_condition("QuotaReserved"), kueue_condition("Admitted")], "admission": admission}
    )


QUEUED: Final = {"scheduling": {"gang": "Kueue", "queue": "team-a"}}
"""The ``runPolicy`` of a job that waits in a queue."""


def queued(api: GangApi = KUEUE, **more: object) -> World:
    """A job of three workers in a queue of Kueue. Arguments are those of :func:`builders.job`."""
    made = job(**{"roles": {"worker": 3}, "runPolicy": QUEUED, **more})  # type: ignore[arg-type]
    return World(made, installed=(api,)).settle()


def admitted(api: GangApi = KUEUE, **more: object) -> World:
    """Such a job that Kueue has admitted, and whose pods all run."""
    story = queued(api, **more)
    admit(story)
    return story.start()


def says(story: World, *conditions: JsonObject, **more: JsonValue) -> None:
    """Kueue writes these conditions of the Workload, and these fields of its status; the others stay."""
    story.kueue_says({**story.the_gang.status, "conditions": [*conditions], **more})


def evict(story: World, reason: str, *, finalizers: bool = False) -> None:
    """Kueue wants the quota back; the pods stop, and are gone unless their ``finalizers`` keep them."""
    kept = [one for one in objects(story.the_gang.status.get("conditions")) if one["type"] != "Evicted"]
    says(story, *kept, kueue_condition("Evicted", reason=reason))
    if finalizers:
        story.settle()
        ended = {name: replace(pod, phase=Phase.FAILED) for name, pod in story.pods.items() if pod.terminating}
        story.pods |= ended
        story.settle()
        return
    story.settle_deletions()


def workload_conditions(story: World) -> dict[str, str]:
    """Status and reason of each condition of the Workload, by type."""
    found = objects(story.the_gang.status.get("conditions"))
    return {str(one["type"]): f"{one['status']}/{one['reason']}" for one in found}


def kueue_condition(kind: str, status: str = "True", *, reason: str = "Because", message: str = "") -> JsonObject:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at()}
