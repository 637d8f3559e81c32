"""How large a cluster is, of what Kubernetes is tested with. Pure.

Source: kubernetes/community, sig-scalability/configs-and-limits/thresholds.md. Jobs count as custom resources, for
which it has a number of objects of a type. A job that has ended is only such an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dtj.client.installation import Count
from dtj.kube.gateway import JOBS, PODS, SERVICES, Resource

NEARLY: Final = 0.8
"""From this share of a size on, it is reported."""


@dataclass(frozen=True, slots=True)
class Most:
    """Numbers of objects that Kubernetes is tested with."""

    cluster: int
    namespace: int


TESTED: Final[Mapping[Resource, Most]] = {
    JOBS: Most(150_000, 150_000),
    PODS: Most(150_000, 3_000),
    SERVICES: Most(10_000, 5_000),
}


def share(count: Count) -> float:
    """What part of the tested number there is; 1 is all of it."""
    return count.number / most(count)


def most(count: Count) -> int:
    """The tested number of such objects."""
    tested = TESTED[count.resource]
    return tested.cluster if count.namespace is None else tested.namespace


def words(count: Count) -> str:
    """``2,950 of 3,000 pods in namespace a``."""
    where = "in the cluster" if count.namespace is None else f"in namespace {count.namespace}"
    return f"{count.number:,} of {most(count):,} {_PLURALS[count.resource]} {where}"


_PLURALS: Final = {JOBS: "jobs", PODS: "pods", SERVICES: "Services"}
