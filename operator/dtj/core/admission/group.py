"""The pods of one attempt as one group, and what they request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pydantic import JsonValue

from dtj.api import quantities
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, digest_of, fields_of, objects
from dtj.api.spec import Gang, JobSpec
from dtj.core import on_out_of_memory
from dtj.core.admission import tfjobs
from dtj.core.observed import GangApi

_TOLD_RESOURCES: Final = frozenset({Gang.KUEUE, Gang.VOLCANO, Gang.COSCHEDULING})
"""The schedulers whose object says what the pods request."""

_TOLD_MIN_RESOURCES: Final = _TOLD_RESOURCES - {Gang.KUEUE}


@dataclass(frozen=True, slots=True)
class Group:
    """The pods of one attempt of a job, as the scheduler behind ``api`` sees them."""

    api: GangApi
    job: Job
    spec: JobSpec

    @property
    def size(self) -> str:
        """What the object says of the job: where this differs, it is changed, or created again."""
        roles = ",".join(f"{role}={self.spec.replicas(role)}" for role in self.spec.roles())
        memory = on_out_of_memory.in_words(self.job, self.spec) if self.api.gang in _TOLD_RESOURCES else ""
        said = tfjobs.least_resources(self.job) if self.api.gang in _TOLD_MIN_RESOURCES else {}
        more = {"memory": memory, "resources": digest_of(said) if said else ""}
        return ";".join((roles, f"min={self.least}", *(f"{key}={value}" for key, value in more.items() if value)))

    @property
    def least(self) -> int:
        """How many pods must be schedulable before any starts."""
        all_pods = sum(self.spec.replicas(role) for role in self.spec.roles())
        return min(self.spec.scheduling.min_available or all_pods, all_pods)

    def resources(self, pods: Iterable[JsonObject]) -> JsonObject | None:
        """What the first ``least`` pods request together, if the job says nothing else; ``pods`` are the first ones of
        each role."""
        if said := tfjobs.least_resources(self.job):
            return said
        total: dict[str, Fraction] = {}
        left = self.least
        for role, pod in zip(self.spec.roles(), pods, strict=True):
            count = min(self.spec.replicas(role), left)
            left -= count
            total = summed(total, {name: count * quantity for name, quantity in requests(pod).items()})
        return {name: quantities.shown(quantity) for name, quantity in total.items()} or None


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
    read = {name: quantities.parse(value) for name, value in fields_of(given).items()}
    return {name: quantity for name, quantity in read.items() if quantity is not None}
