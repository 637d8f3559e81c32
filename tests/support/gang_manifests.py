"""What gangs and their pods say of each other, in the words of whichever scheduler."""

from __future__ import annotations

from dtj.api.json import JsonObject, dig, text


def gang_of(manifest: JsonObject) -> str | None:
    """The gang that a pod belongs to, by whichever scheduler's words; None where it belongs to none."""
    ways = (
        ("metadata", "annotations", "scheduling.k8s.io/group-name"),
        ("metadata", "labels", "scheduling.x-k8s.io/pod-group"),
        ("spec", "schedulingGroup", "podGroupName"),
    )
    return next((text(found) for way in ways if (found := dig(manifest, *way)) is not None), None)


def members_needed(gang: JsonObject) -> int:
    """How many members a PodGroup waits for."""
    ways = (("minMember",), ("schedulingPolicy", "gang", "minCount"))
    return next(found for way in ways if isinstance(found := dig(gang, "spec", *way), int))
