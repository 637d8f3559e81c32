"""What the scheduler counts for a pod."""

from __future__ import annotations

from fractions import Fraction

from pydantic import JsonValue

from dtj.api import quantities
from dtj.api.json import JsonObject, dig, objects


def requests(pod: JsonObject) -> dict[str, Fraction]:
    """What the scheduler counts for a pod, by resource.

    The containers run together. An init container runs before them, next to the native sidecars (init containers that
    restart always) listed before it; these stay. A pod may name a sum of its own for CPU, memory and huge pages; its
    runtime class adds an overhead. Source: PodRequests in k8s.io/component-helpers/resource/helpers.go (KEP-753,
    KEP-2837).
    """
    total: dict[str, Fraction] = {}
    for container in objects(dig(pod, "spec", "containers")):
        total = summed(total, _asked(container))
    sidecars: dict[str, Fraction] = {}
    at_init: dict[str, Fraction] = {}
    for container in objects(dig(pod, "spec", "initContainers")):
        asked = summed(sidecars, _asked(container))
        if container.get("restartPolicy") == "Always":
            total, sidecars = summed(total, _asked(container)), asked
        at_init = _largest(at_init, asked)
    total = _largest(total, at_init)
    for_the_pod = _quantities(dig(pod, "spec", "resources", "requests"))
    total.update({name: quantity for name, quantity in for_the_pod.items() if _may_be_for_the_pod(name)})
    return summed(total, _quantities(dig(pod, "spec", "overhead")))


def _may_be_for_the_pod(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def summed(one: dict[str, Fraction], other: dict[str, Fraction]) -> dict[str, Fraction]:
    """Two amounts by resource, added."""
    return {name: one.get(name, Fraction()) + other.get(name, Fraction()) for name in {**one, **other}}


def _largest(one: dict[str, Fraction], other: dict[str, Fraction]) -> dict[str, Fraction]:
    return {name: max(one.get(name, Fraction()), other.get(name, Fraction())) for name in {**one, **other}}


def _asked(container: JsonObject) -> dict[str, Fraction]:
    """Requests; a limit is one, too, if nothing else is given."""
    return {
        **_quantities(dig(container, "resources", "limits")),
        **_quantities(dig(container, "resources", "requests")),
    }


def _quantities(given: JsonValue) -> dict[str, Fraction]:
    """Those of ``given`` that are quantities."""
    read = {name: quantities.parse(value) for name, value in given.items()} if isinstance(given, dict) else {}
    return {name: quantity for name, quantity in read.items() if quantity is not None}
