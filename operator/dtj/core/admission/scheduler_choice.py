"""Which gang scheduler a job uses: the APIs that are known, those that the cluster serves, and what the job wants.

Also when the APIs are looked for again; :mod:`dtj.core.policies.admission` asks for the first look.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from dtj.api.names import Reason
from dtj.api.spec import Gang, Scheduling
from dtj.core.observed import GangApi, GangsFound
from dtj.core.status import is_over
from dtj.core.validity import Problem

APIS: Final = (
    GangApi(Gang.KUEUE, "kueue.x-k8s.io/v1beta2", "Workload", "workloads"),
    GangApi(Gang.VOLCANO, "scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups"),
    GangApi(Gang.COSCHEDULING, "scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups"),
    GangApi(Gang.NATIVE, "scheduling.k8s.io/v1beta1", "PodGroup", "podgroups"),
)
"""The APIs that are known, one of each scheduler."""

LOOK_AGAIN: Final = timedelta(seconds=60)
"""How often it is asked whether a scheduler that a job names has been installed."""

_PRIORITY_CLASSES: Final = "scheduling.k8s.io/v1"
"""Every cluster has it, and no gang in it."""

_UPGRADE: Final = "upgrade Kubernetes to 1.37 and enable it there, or set gang to Volcano, Coscheduling or Kueue"

_AUTO: Final = (Gang.VOLCANO, Gang.COSCHEDULING, Gang.NATIVE)
_AUTO_WITH_QUEUE: Final = (Gang.KUEUE, Gang.VOLCANO)


def choose(
    scheduling: Scheduling, found: GangsFound, *, setting: str = "runPolicy.scheduling"
) -> GangApi | Problem | None:
    """Who schedules this job's pods together: an API that is served, None for nobody, or what is wrong with the
    setting."""
    if scheduling.gang is Gang.NONE:
        return None
    automatic = _AUTO if scheduling.queue is None else _AUTO_WITH_QUEUE
    wanted = automatic if scheduling.gang is Gang.AUTO else (scheduling.gang,)
    first = next((gang for gang in wanted if gang in found.failing or served(gang, found)), None)
    if first is not None and first in found.failing:
        return failing(first, found, setting=setting)
    chosen = served(first, found) if first is not None else None
    if chosen is not None or (scheduling.gang is Gang.AUTO and scheduling.queue is None):
        return chosen
    denied = next((str(api.gang) for api in found.denied if api.gang in wanted), None)
    if denied is not None:
        return Problem(
            Reason.GANG_UNAVAILABLE,
            f"{setting}: this cluster has {denied}, but the operator has no permission to use it: add "
            f"{denied} to gangSchedulers of its chart, or set another gang",
        )
    there = ", ".join((*(str(api.gang) for api in found.apis), *found.unknown)) or "none"
    known = ", ".join(api.api_version for api in APIS if api.gang in wanted)
    remedy = _UPGRADE if wanted == (Gang.NATIVE,) else "install a version that has one, or set another gang"
    return Problem(
        Reason.GANG_UNAVAILABLE,
        f"{setting}: this cluster serves no API of {' or '.join(wanted)} that the operator knows ({known}): "
        f"{remedy} (found: {there})",
    )


def failing(gang: Gang, found: GangsFound, *, setting: str = "") -> Problem:
    """That the API fails of the scheduler that the job needs. ``setting`` is where it names another; empty if it has
    begun."""
    what = f"the API of {gang} fails ({found.failing[gang]})"
    if setting:
        return Problem(Reason.GANG_UNAVAILABLE, f"{setting}: {what}: repair it, or set another gang")
    return Problem(Reason.GANG_UNAVAILABLE, f"{what}: the job gets no new pods until it is repaired")


def kept(gang: str, found: GangsFound) -> GangApi | Problem | None:
    """The API of the scheduler that a job began with; None if it began without one.

    An API that is not there, or not allowed, may be so for a moment only: an API server that starts serves an API of
    others late, and learns of new rights late. The job gets no new pods meanwhile, which would start past its queue.
    """
    if gang in ("", Gang.NONE):
        return None
    if (failed := next((one for one in found.failing if one == gang), None)) is not None:
        return failing(failed, found)
    if (api := served(gang, found)) is not None:
        return api
    denied = any(api.gang == gang for api in found.denied)
    why = "the operator has no permission to use it" if denied else "the cluster does not serve its API"
    message = f"the job began with {gang}, and {why}: the job gets no new pods until that is repaired"
    return Problem(Reason.GANG_UNAVAILABLE, message)


def served(gang: str, found: GangsFound) -> GangApi | None:
    """The API of this scheduler, if the cluster has it."""
    return next((api for api in found.apis if api.gang == gang), None)


def unknown_versions(versions: Iterable[str]) -> tuple[str, ...]:
    """Of each ``<group>/<version>`` those of groups of which the operator can use none: a scheduler that is too old, or
    too new."""
    served, known = tuple(versions), {api.api_version for api in APIS}
    usable = {_group(version) for version in served if version in known}
    return tuple(each for each in served if each != _PRIORITY_CLASSES and _group(each) not in usable)


def _group(version: str) -> str:
    return version.partition("/")[0]


def looked_long_ago(found: GangsFound, now: datetime) -> bool:
    """Whether it is time to ask again what is installed."""
    return is_over(found.at, LOOK_AGAIN, now)
