"""TFJobs in the model of a cluster: what their users write, and what pods and status say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import bad_tfjobs
from bad_tfjobs import role
from builders import stored
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.core.platform import PLATFORM_OF_TFJOBS
from support.pod_environment import environment_of
from world import World


def tfjob(roles: Mapping[str, int | JsonObject] | None = None, *, restarts: str = "", **spec: object) -> JsonObject:
    """A TFJob as the API server stores it, of two workers where ``roles`` names none; a role by its number or whole."""
    policy: JsonObject = {"restartPolicy": restarts} if restarts else {}
    given = {
        kind: {**(role(each) if isinstance(each, int) else each), **policy}
        for kind, each in (roles or {"Worker": 2}).items()
    }
    return stored(bad_tfjobs.tfjob(spec=spec, **given))  # type: ignore[arg-type]  # no role is called name


def world_of(body: JsonObject, **platform: Any) -> World:
    """The arguments are fields of the platform of TFJobs."""
    return World(Job.from_object(body), platform=replace(PLATFORM_OF_TFJOBS, **platform))


def running_tfjob(
    roles: Mapping[str, int | JsonObject] | None = None, *, restarts: str = "OnFailure", **spec: object
) -> World:
    """A TFJob whose pods run."""
    return world_of(tfjob(roles, restarts=restarts, **spec)).start()


def change(world: World, body: JsonObject) -> None:
    """Its user replaces the manifest."""
    changed = Job.from_object({**body, "status": world.job.raw_status})
    world.job = replace(changed, generation=world.job.generation + 1)


def container_of(world: World, pod: str) -> JsonObject:
    """The first container of a replica's pod."""
    return objects(dig(world.manifests[f"mnist-{pod}"], "spec", "containers"))[0]


def tf_config(world: World, pod: str) -> JsonObject | None:
    """What its pod tells a replica of its cluster, if it does."""
    found = environment_of(world.manifests[f"mnist-{pod}"]).get("TF_CONFIG")
    return json.loads(found) if found else None


def conditions(world: World) -> dict[str, str]:
    """What is true and what is not, in the order of the list."""
    return {text(c["type"]): text(c["status"]) for c in objects(world.job.raw_status.get("conditions"))}


def last_condition(world: World) -> JsonObject:
    """The one that holds."""
    return objects(world.job.raw_status.get("conditions"))[-1]
