"""The checks of ``dtj doctor``: what was found of an installation goes in, findings come out. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dtj import __version__
from dtj.api import names, quantities
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.profiles import SHIPPED_PROFILES, Profile
from dtj.api.schema import generated_job_schema
from dtj.cli.common.formatting import counted, listed, short_time
from dtj.cli.doctor import queues
from dtj.cli.doctor.findings import Finding, Verdict
from dtj.client.installation import OF_A_PERSON, Answered, Count, Installation, LeaseSeen, Operator
from dtj.client.overview import Part
from dtj.core.observed import GangApi
from dtj.engine.profile_file import ProfilesError, read_profiles
from dtj.kube.gateway import JOBS, PODS, SERVICES, Resource
from dtj.kube.rbac import FOR_GANGS, FOR_KUEUE

Check: TypeAlias = Callable[[Installation], Iterator[Finding]]

OLDEST_KUBERNETES: Final = (1, 30)
"""The oldest Kubernetes that is supported: what the chart's kubeVersion says, too."""

_NEARLY_FULL: Final = 0.9
"""A quota of which more is used is near its limit."""

_LITTLE_MEMORY: Final = 2**30
"""Bytes below which TensorFlow hardly starts."""

_MAX_NAMED: Final = 3
"""This many fields or rights are named; of more, only the number."""


def findings(found: Installation) -> tuple[Finding, ...]:
    """All checks, in the order in which one depends on the other."""
    return tuple(finding for check in _CHECKS for finding in check(found))


def _readable(title: str, part: Callable[[Installation], Part[Any]], check: Check) -> Check:
    """The check, where what it looks at could be read."""

    def checked(found: Installation) -> Iterator[Finding]:
        unread = part(found).unread
        return iter((Finding(Verdict.UNKNOWN, title, unread),)) if unread else check(found)

    return checked


# -- the cluster -----------------------------------------------------------------------------------------------


def _version(found: Installation) -> Iterator[Finding]:
    match = re.match(r"v?(\d+)\.(\d+)", found.version)
    words = f"{found.server} answers: Kubernetes {found.version}"
    if match is None:
        yield Finding(Verdict.WARN, "cluster", f"{words}, a version that dtj cannot read")
    elif (int(match[1]), int(match[2])) < OLDEST_KUBERNETES:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        yield Finding(Verdict.FAIL, "cluster", f"{words}; {oldest} or newer is required", "upgrade the cluster")
    else:
        yield Finding(Verdict.OK, "cluster", words)


def _definition(found: Installation) -> Iterator[Finding]:
    install = "helm upgrade --install dtj charts/dtj, or kubectl apply -f crds/"
    if not found.served:
        yield Finding(Verdict.FAIL, "CRD", f"{names.KIND} is unknown to the cluster", install)
        return
    if not found.crd.items:
        yield Finding(Verdict.UNKNOWN, "CRD", f"it is installed; whether it matches: {found.crd.unread}")
        return
    different = schema_differences(found.crd.items[0])
    if different:
        more = f" and {len(different) - _MAX_NAMED} more" if len(different) > _MAX_NAMED else ""
        words = f"it differs from that of dtj {__version__}: {', '.join(different[:_MAX_NAMED])}{more}"
        yield Finding(Verdict.WARN, "CRD", words, f"use one version of operator, CRD and this program: {install}")
    else:
        yield Finding(Verdict.OK, "CRD", f"{names.API_VERSION}, the same as that of dtj {__version__}")


def schema_differences(crd: JsonObject) -> tuple[str, ...]:
    """The fields in which the installed CRD's schema is not ours. Descriptions do not count."""
    versions = [v for v in objects(dig(crd, "spec", "versions")) if v.get("name") == names.VERSION]
    if not versions:
        return (f"version {names.VERSION} is missing",)
    theirs = dig(versions[0], "schema", "openAPIV3Schema")
    return tuple(dict.fromkeys(_differences(generated_job_schema(), theirs, ())))


def _differences(ours: object, theirs: object, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in dict.fromkeys((*ours, *theirs)):
            if key != "description" or "properties" in path[-1:]:
                yield from _differences(ours.get(key), theirs.get(key), (*path, str(key)))
    elif ours != theirs:
        named = [part for place, part in enumerate(path) if place and path[place - 1] == "properties"]
        how = " is unknown to it" if theirs is None and path[-2:-1] == ("properties",) else ""
        yield (".".join(named) or "the whole") + how


# -- operators -------------------------------------------------------------------------------------------------


def _operators(found: Installation) -> Iterator[Finding]:
    if found.operators.unread:
        words = f"{found.operators.unread}; name its namespace with --operator-namespace"
        yield Finding(Verdict.UNKNOWN, "operator", words)
        return
    if not found.operators.items:
        words = "this cluster has no Deployment of an operator; dtj cannot see one that runs elsewhere"
        yield Finding(Verdict.FAIL, "operator", words, "helm install dtj charts/dtj -n dtj-system --create-namespace")
        return
    serving = [operator for operator in found.operators.items if operator.serves(found.namespace)]
    for operator in serving or found.operators.items:
        yield from _operator(operator, found)
    if not serving:
        there = "; ".join(
            f"{_place(each)} runs the jobs of {', '.join(each.namespaces)}" for each in found.operators.items
        )
        words = f"no operator runs the jobs of {found.namespace}: {there}"
        yield Finding(Verdict.FAIL, "operator", words, f"add {found.namespace} to namespaces of its chart")
    elif len(serving) > 1:
        both = listed(map(_place, serving))
        words = f"{both} all run the jobs of namespace {found.namespace}: each undoes the work of the others"
        yield Finding(Verdict.FAIL, "operator", words, "uninstall all but one, or give each its own namespaces")


def _place(operator: Operator) -> str:
    return f"{operator.namespace}/{operator.name}"


def _operator(operator: Operator, found: Installation) -> Iterator[Finding]:
    wanted, ready = dig(operator.body, "spec", "replicas"), dig(operator.body, "status", "readyReplicas")
    counts = f"{ready or 0} of {wanted} pods are ready"
    look = f"kubectl -n {operator.namespace} describe deployment/{operator.name}"
    logs = f"kubectl -n {operator.namespace} logs deployment/{operator.name}"
    verdict = Verdict.OK if ready == wanted else Verdict.WARN if ready else Verdict.FAIL
    yield Finding(verdict, "operator", f"{_place(operator)}: {counts}", "" if verdict is Verdict.OK else look)
    if operator.version and operator.version != __version__:
        words = f"{_place(operator)} has version {operator.version}, this program {__version__}"
        yield Finding(Verdict.WARN, "operator", words, "use one version for both")
    if operator.lease.unread:
        yield Finding(Verdict.UNKNOWN, "leader", operator.lease.unread)
    for lease in operator.lease.items:
        age = f"{short_time((found.at - lease.renewed_at).total_seconds())} ago" if lease.renewed_at else "never"
        if lease.alive(found.at):
            yield Finding(Verdict.OK, "leader", f"{lease.holder} leads")
            yield from _throttling(lease)
        else:
            holder = lease.holder or "no process"
            words = f"{holder} holds the lease of {_place(operator)}, renewed {age}: no operator is working"
            yield Finding(Verdict.FAIL, "leader", words, logs)


def _throttling(lease: LeaseSeen) -> Iterator[Finding]:
    if lease.throttled:
        words = f"the API server answers calls of {lease.holder} with 429 (Too Many Requests): it makes fewer of them"
        remedy = "give its service account a FlowSchema with a larger share, or lower workers of its chart"
        yield Finding(Verdict.WARN, "API server", words, remedy)


def _operator_rights(found: Installation) -> Iterator[Finding]:
    for operator in found.operators.items:
        if operator.rights.unread:
            yield Finding(Verdict.UNKNOWN, "operator's rights", operator.rights.unread)
            continue
        optional = {*FOR_KUEUE, *(right for rights in FOR_GANGS.values() for right in rights)}
        missing = [each for each in operator.rights.items if not each.allowed and each.right not in optional]
        if missing:
            words = f"{_place(operator)} may not {_described(missing)} in namespace {found.namespace}"
            yield Finding(Verdict.FAIL, "operator's rights", words, "set rbac.create of its chart, and upgrade")
        elif operator.rights.items:
            words = f"{_place(operator)} has all permissions that it needs in namespace {found.namespace}"
            yield Finding(Verdict.OK, "operator's rights", words)


def _rights(found: Installation) -> Iterator[Finding]:
    missing = [each for each in found.rights.items if not each.allowed]
    if not missing:
        words = f"in namespace {found.namespace} you may see, submit, change and delete jobs, and read logs"
        yield Finding(Verdict.OK, "your rights", words)
        return
    blind = any(each.right == OF_A_PERSON[0] for each in missing)
    words = f"in namespace {found.namespace} you may not {_described(missing)}"
    remedy = f"ask for the role edit in namespace {found.namespace}, which the chart adds jobs to"
    yield Finding(Verdict.FAIL if blind else Verdict.WARN, "your rights", words, remedy)


def _described(missing: Sequence[Answered]) -> str:
    """The first of the missing rights with what they are for, and how many more there are."""
    first = [f"{each.verb} {each.right.path} ({each.right.why})" for each in missing[:_MAX_NAMED]]
    more = len(missing) - len(first)
    return listed([*first, *([f"{more} more"] if more else [])])


def _gangs(found: Installation) -> Iterator[Finding]:
    if not found.gangs.items and not found.unknown_gangs:
        words = "none: pods of a job are scheduled one by one"
        yield Finding(Verdict.OK, "gang schedulers", words)
    if found.unknown_gangs:
        words = f"the cluster serves {listed(found.unknown_gangs)}, which dtj {__version__} does not know"
        yield Finding(Verdict.WARN, "gang schedulers", words, "upgrade what is older, the operator or the scheduler")
    for api in found.gangs.items:
        yield _gang(api, found)


def _gang(api: GangApi, found: Installation) -> Finding:
    """Whether the operators may use a scheduler that is there."""
    name = f"{api.gang} ({api.api_version})"
    rights = [right for right in FOR_GANGS[api.gang] if right.resource.plural == api.plural]
    asked = [
        (operator, answer.allowed)
        for operator in found.operators.items
        for answer in operator.rights.items
        if answer.right in rights
    ]
    denied = next((operator for operator, allowed in asked if not allowed), None)
    if denied is not None:
        words = f"the cluster has {name}, but {_place(denied)} lacks the permission to use it"
        remedy = f"add {api.gang} to gangSchedulers of its chart"
        return Finding(Verdict.WARN, "gang schedulers", words, remedy)
    if asked:
        return Finding(Verdict.OK, "gang schedulers", f"{name}, which the operator may use")
    words = f"the cluster has {name}; dtj cannot see whether the operator may use it"
    return Finding(Verdict.UNKNOWN, "gang schedulers", words)


# -- what jobs need --------------------------------------------------------------------------------------------


def _profiles(found: Installation) -> Iterator[Finding]:
    own: dict[str, Profile] = {}
    for operator in found.operators.items:
        if operator.profiles.unread:
            yield Finding(Verdict.UNKNOWN, "accelerators", operator.profiles.unread)
        for file in operator.profiles.items:
            try:
                own |= {profile.name: profile for profile in read_profiles(file, where=f"of {_place(operator)}")}
            except ProfilesError as error:
                yield Finding(Verdict.FAIL, "accelerators", str(error), "fix them in the values of its chart")
    profiles = {**SHIPPED_PROFILES, **own}
    nodes = {name: _nodes_of(profile, found.nodes.items) for name, profile in profiles.items()}
    usable = [f"{name} ({counted(count, 'node')})" for name, (_, count) in nodes.items() if count]
    none = "no node has an accelerator that a profile names"
    yield Finding(Verdict.OK, "accelerators", f"profiles with nodes: {', '.join(usable)}" if usable else none)
    for name, profile in profiles.items():
        yield from _profile(profile, *nodes[name], configured=name in own)


def _profile(profile: Profile, labelled: int, usable: int, *, configured: bool) -> Iterator[Finding]:
    """A profile that should have nodes and has none that can be used."""
    if labelled and not usable and profile.node_selector:
        words = f"profile {profile.name}: {counted(labelled, 'node')} with its labels, but no {profile.resource} on any"
        remedy = f"check that the device plugin of {profile.resource} runs"
        yield Finding(Verdict.WARN, "accelerators", words, remedy)
    elif configured and not usable:
        words = f"profile {profile.name} matches no node: a job that requests it waits until there is one"
        remedy = "fix its nodeSelector, unless nodes are created on demand"
        yield Finding(Verdict.WARN, "accelerators", words, remedy)


def _nodes_of(profile: Profile, nodes: Sequence[JsonObject]) -> tuple[int, int]:
    """How many nodes have the profile's labels, and how many of them its resource, too."""
    labelled = [
        node
        for node in nodes
        if all(dig(node, "metadata", "labels", key) == value for key, value in profile.node_selector.items())
    ]
    return len(labelled), len(
        [node for node in labelled if quantities.parse(dig(node, "status", "allocatable", profile.resource))]
    )


def _quotas(found: Installation) -> Iterator[Finding]:
    tight = [line for quota in found.quotas.items for line in _tight(quota)]
    if tight:
        remedy = f"wait, request less, or have it raised: kubectl -n {found.namespace} describe resourcequota"
        yield Finding(Verdict.WARN, "quotas", f"close to or at their limit: {', '.join(tight)}", remedy)
    else:
        there = "none" if not found.quotas.items else "room in all"
        yield Finding(Verdict.OK, "quotas", f"namespace {found.namespace}: {there}")


def _tight(quota: JsonObject) -> Iterator[str]:
    hard = dig(quota, "status", "hard")
    for resource, limit in hard.items() if isinstance(hard, dict) else ():
        used = dig(quota, "status", "used", resource)
        most, taken = quantities.parse(limit), quantities.parse(used)
        if most is not None and taken is not None and (taken >= most or taken >= most * _NEARLY_FULL):
            yield f"{text(dig(quota, 'metadata', 'name'))} {resource} {used} of {limit}"


def _limits(found: Installation) -> Iterator[Finding]:
    found_any = False
    for limits in found.limit_ranges.items:
        name = text(dig(limits, "metadata", "name"))
        for limit in objects(dig(limits, "spec", "limits")):
            for field, words, remedy in (
                ("max", "refuses a {kind} with more memory than {value}", "have LimitRange {name} raised"),
                (
                    "default",
                    "limits a {kind} without a limit to {value} of memory",
                    "set resources in the manifest",
                ),
            ):
                value = dig(limit, field, "memory")
                bytes_ = quantities.parse(value)
                if bytes_ is not None and bytes_ < _LITTLE_MEMORY:
                    found_any = True
                    effect = words.format(kind=str(limit.get("type")).lower(), value=value)
                    hint = f"TensorFlow needs about 1Gi to start: {remedy.format(name=name)}"
                    yield Finding(Verdict.WARN, "limits", f"LimitRange {name} {effect}", hint)
    if not found_any:
        yield Finding(Verdict.OK, "limits", f"namespace {found.namespace}: no LimitRange is too small")


# -- how large the cluster is, of what Kubernetes is tested with ------------------------------------------------

# Source: kubernetes/community, sig-scalability/configs-and-limits/thresholds.md. Jobs count as custom resources, for
# which it has a number of objects of a type. A job that has ended is only such an object.

_NEARLY: Final = 0.8
"""From this share of a size on, it is reported."""


@dataclass(frozen=True, slots=True)
class _Tested:
    """Numbers of objects that Kubernetes is tested with."""

    cluster: int
    namespace: int


_SIZES: Final[Mapping[Resource, _Tested]] = {
    JOBS: _Tested(150_000, 150_000),
    PODS: _Tested(150_000, 3_000),
    SERVICES: _Tested(10_000, 5_000),
}


def _share(count: Count) -> float:
    """What part of the tested number there is; 1 is all of it."""
    return count.number / _tested(count)


def _tested(count: Count) -> int:
    """The tested number of such objects."""
    tested = _SIZES[count.resource]
    return tested.cluster if count.namespace is None else tested.namespace


def _count_words(count: Count) -> str:
    """``2,950 of 3,000 pods in namespace a``."""
    where = "in the cluster" if count.namespace is None else f"in namespace {count.namespace}"
    return f"{count.number:,} of {_tested(count):,} {_PLURALS[count.resource]} {where}"


_PLURALS: Final = {JOBS: "jobs", PODS: "pods", SERVICES: "Services"}


def _size(found: Installation) -> Iterator[Finding]:
    near = [count for count in found.counts.items if _share(count) >= _NEARLY]
    if near:
        words = f"close to or above what Kubernetes is tested with: {'; '.join(map(_count_words, near))}"
        yield Finding(Verdict.WARN, "size", words, "delete jobs that have ended, or use further namespaces or clusters")
    elif found.counts.items:
        yield Finding(Verdict.OK, "size", "; ".join(map(_count_words, found.counts.items)))
    if found.counts.unread:
        yield Finding(Verdict.UNKNOWN, "size", found.counts.unread)


def _admission(found: Installation) -> Iterator[Finding]:
    if found.refusal.items:
        words = f"a small job is refused: {found.refusal.items[0]}"
        yield Finding(Verdict.FAIL, "submitting", words, "fix what the message names")
    else:
        yield Finding(Verdict.OK, "submitting", f"namespace {found.namespace} accepts a small job (dry run)")


_CHECKS: Final[tuple[Check, ...]] = (
    _version,
    _definition,
    _operators,
    _operator_rights,
    _readable("your rights", lambda found: found.rights, _rights),
    _readable("submitting", lambda found: found.refusal, _admission),
    _readable("gang schedulers", lambda found: found.gangs, _gangs),
    queues.findings,
    _readable("accelerators", lambda found: found.nodes, _profiles),
    _readable("quotas", lambda found: found.quotas, _quotas),
    _readable("limits", lambda found: found.limit_ranges, _limits),
    _size,
)
