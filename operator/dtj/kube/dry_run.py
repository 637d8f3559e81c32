"""What an API server says of an object by a strict dry run, of which nothing stays.

The operator asks so before it creates pods, ``dtj validate --server`` and a submit before there is a job.
"""

from __future__ import annotations

from dataclasses import dataclass

from dtj.api.json import JsonObject, dig
from dtj.kube.errors import AlreadyExists, Forbidden, Invalid
from dtj.kube.gateway import Gateway, Resource


@dataclass(frozen=True, slots=True)
class Verdict:
    """``errors`` are about the manifest, as ``field: what is wrong``.

    ``forbidden`` is a refusal for another reason: a quota, a policy, a missing right. ``wants_restricted`` is whether
    that is the Pod Security Standard "restricted". ``priority`` is what the cluster makes of a pod's priority class.
    """

    errors: tuple[str, ...] = ()
    forbidden: str = ""
    wants_restricted: bool = False
    priority: int | None = None


async def dry_run(gateway: Gateway, resource: Resource, *, namespace: str, body: JsonObject) -> Verdict:
    """Ask for an object; that one of its name is there is no error of the manifest. Raises ApiError otherwise."""
    try:
        taken = await gateway.create(resource, namespace=namespace, body=body, dry_run=True)
    except AlreadyExists:
        return Verdict()
    except Forbidden as error:
        return Verdict(forbidden=error.message, wants_restricted=error.wants_restricted)
    except Invalid as error:
        return Verdict(error.causes or (error.message,))
    priority = dig(taken, "spec", "priority")
    return Verdict(priority=priority if isinstance(priority, int) else None)
