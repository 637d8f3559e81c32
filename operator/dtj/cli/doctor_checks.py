"""The checks of ``dtj doctor``: what was found of an installation goes in, findings come out. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import yaml
from pydantic import TypeAdapter, ValidationError

from dtj import __version__
from dtj.api import names, quantities
from dtj.api.crd import job_schema
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.profiles import SHIPPED_PROFILES, Profile
from dtj.cli.quantities import counted, listed, short_time
from dtj.client.installation import Answered, Installation, Operator
from dtj.kube.rights import FOR_GANGS, Right

OLDEST_KUBERNETES: Final = (1, 30)
"""The oldest Kubernetes that is supported: what the chart's kubeVersion says, too."""

_NEARLY_FULL: Final = 0.9
"""A quota of which more is used is near its limit."""

_LITTLE_MEMORY: Final = 2**30
"""Bytes below which TensorFlow hardly starts."""

_MOST_PATHS: Final = 3


class Verdict(StrEnum):
    """What came of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check, in a sentence, and what to do where it is not well."""

    verdict: Verdict
    title: str
    words: str
    remedy: str = ""


def findings(found: Installation) -> tuple[Finding, ...]:
    """All checks, in the order in which one depends on the other."""
    return tuple(finding for check in _CHECKS for finding in check(found))


# -- the cluster -----------------------------------------------------------------------------------------------


def _version(found: Installation) -> Iterator[Finding]:
    match = re.match(r"v?(\d+)\.(\d+)", found.version)
    words = f"{found.server} answers: Kubernetes {found.version}"
    if match is None:
        yield Finding(Verdict.WARN, "cluster", f"{words}, which is no version that can be read")
    elif (int(match[1]), int(match[2])) < OLDEST_KUBERNETES:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        yield Finding(Verdict.FAIL, "cluster", f"{words}; {oldest} or newer is needed", "upgrade the cluster")
    else:
        yield Finding(Verdict.OK, "cluster", words)


def _definition(found: Installation) -> Iterator[Finding]:
    install = "helm upgrade --install dtj charts/dtj, or kubectl apply -f crds/"
    if not found.served:
        yield Finding(Verdict.FAIL, "CRD", f"{names.KIND} is not known to the cluster", install)
        return
    if not found.crd.items:
        yield Finding(Verdict.UNKNOWN, "CRD", f"it is installed; whether it fits: {found.crd.unread}")
        return
    different = schema_differences(found.crd.items[0])
    if different:
        more = f" and {len(different) - _MOST_PATHS} more" if len(different) > _MOST_PATHS else ""
        words = f"it is not that of dtj {__version__}: {', '.join(different[:_MOST_PATHS])}{more}"
        yield Finding(Verdict.WARN, "CRD", words, f"have operator, CRD and this program of one version: {install}")
    else:
        yield Finding(Verdict.OK, "CRD", f"{names.API_VERSION}, the same as that of dtj {__version__}")


def schema_differences(crd: JsonObject) -> tuple[str, ...]:
    """The fields in which the installed CRD's schema is not ours. Descriptions do not count."""
    versions = [v for v in objects(dig(crd, "spec", "versions")) if v.get("name") == names.VERSION]
    if not versions:
        return (f"version {names.VERSION} is missing",)
    theirs = dig(versions[0], "schema", "openAPIV3Schema")
    return tuple(dict.fromkeys(_differences(job_schema(), theirs, ())))


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
        words = "no Deployment of an operator is in this cluster; one that runs elsewhere cannot be seen"
        yield Finding(Verdict.FAIL, "operator", words, "helm install dtj charts/dtj -n dtj-system --create-namespace")
        return
    serving = [operator for operator in found.operators.items if operator.serves(found.namespace)]
    for operator in serving or found.operators.items:
        yield from _operator(operator, found)
    if not serving:
        there = "; ".join(
            f"{_place(each)} runs those of {', '.join(each.namespaces)}" for each in found.operators.items
        )
        words = f"none runs the jobs of namespace {found.namespace}: {there}"
        yield Finding(Verdict.FAIL, "operator", words, f"add {found.namespace} to namespaces of its chart")
    elif len(serving) > 1:
        both = listed(map(_place, serving))
        words = f"{both} all run the jobs of namespace {found.namespace}: they undo each other's work"
        yield Finding(Verdict.FAIL, "operator", words, "uninstall all but one, or give them namespaces of their own")


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
        words = f"{_place(operator)} is of version {operator.version}, this program of {__version__}"
        yield Finding(Verdict.WARN, "operator", words, "use the same version of both")
    if operator.lease.unread:
        yield Finding(Verdict.UNKNOWN, "leader", operator.lease.unread)
    for lease in operator.lease.items:
        age = f"{short_time((found.at - lease.renewed_at).total_seconds())} ago" if lease.renewed_at else "never"
        if lease.alive(found.at):
            yield Finding(Verdict.OK, "leader", f"{lease.holder} leads")
        else:
            holder = lease.holder or "nobody"
            words = f"{holder} holds the lease of {_place(operator)}, renewed {age}: no operator works"
            yield Finding(Verdict.FAIL, "leader", words, logs)


def _operator_rights(found: Installation) -> Iterator[Finding]:
    for operator in found.operators.items:
        if operator.rights.unread:
            yield Finding(Verdict.UNKNOWN, "operator's rights", operator.rights.unread)
            continue
        optional = {right for rights in FOR_GANGS.values() for right in rights}
        missing = [each for each in operator.rights.items if not each.allowed and each.right not in optional]
        if missing:
            words = f"{_place(operator)} may not {_said(missing)} in namespace {found.namespace}"
            yield Finding(Verdict.FAIL, "operator's rights", words, "set rbac.create of its chart, and upgrade")
        elif operator.rights.items:
            words = f"{_place(operator)} has all that it needs in namespace {found.namespace}"
            yield Finding(Verdict.OK, "operator's rights", words)


def _rights(found: Installation) -> Iterator[Finding]:
    if found.rights.unread:
        yield Finding(Verdict.UNKNOWN, "your rights", found.rights.unread)
        return
    missing = [each for each in found.rights.items if not each.allowed]
    if not missing:
        words = f"in namespace {found.namespace} you may see, submit, change and delete jobs, and read logs"
        yield Finding(Verdict.OK, "your rights", words)
        return
    blind = any(each.right is found.rights.items[0].right for each in missing)
    words = f"in namespace {found.namespace} you may not {_said(missing)}"
    remedy = f"ask for the role edit in namespace {found.namespace}, which the chart adds jobs to"
    yield Finding(Verdict.FAIL if blind else Verdict.WARN, "your rights", words, remedy)


def _said(missing: Sequence[Answered]) -> str:
    return listed(f"{each.verb} {each.right.path} ({_reason(each.right)})" for each in missing)


def _reason(right: Right) -> str:
    return right.why.removeprefix("to ")


def _gangs(found: Installation) -> Iterator[Finding]:
    if found.gangs.unread:
        yield Finding(Verdict.UNKNOWN, "gang schedulers", found.gangs.unread)
        return
    if not found.gangs.items:
        words = "none: pods of a job are scheduled one by one"
        yield Finding(Verdict.OK, "gang schedulers", words)
        return
    for api in found.gangs.items:
        rights = FOR_GANGS[api.gang]
        kept = {right.resource.kind for right in rights if right.resource.plural == api.plural}
        asked = [
            (operator, answer)
            for operator in found.operators.items
            for answer in operator.rights.items
            if answer.right in rights and answer.right.resource.kind in kept
        ]
        denied = next((operator for operator, answer in asked if not answer.allowed), None)
        if denied is not None:
            words = (
                f"the cluster has {api.gang} ({api.api_version}), but {_place(denied)} has no right to tell it of jobs"
            )
            remedy = f"add {api.gang} to gangSchedulers of its chart"
            yield Finding(Verdict.WARN, "gang schedulers", words, remedy)
        elif asked:
            yield Finding(Verdict.OK, "gang schedulers", f"{api.gang} ({api.api_version}), which the operator may use")
        else:
            words = f"the cluster has {api.gang} ({api.api_version}); whether the operator may use it cannot be seen"
            yield Finding(Verdict.UNKNOWN, "gang schedulers", words)


# -- what jobs need --------------------------------------------------------------------------------------------


def _profiles(found: Installation) -> Iterator[Finding]:
    if found.nodes.unread:
        yield Finding(Verdict.UNKNOWN, "accelerators", found.nodes.unread)
        return
    own: dict[str, Profile] = {}
    for operator in found.operators.items:
        if operator.profiles.unread:
            yield Finding(Verdict.UNKNOWN, "accelerators", operator.profiles.unread)
        for file in operator.profiles.items:
            try:
                given = TypeAdapter(list[Profile]).validate_python(yaml.safe_load(file))
            except (ValidationError, yaml.YAMLError) as error:
                words = f"acceleratorProfiles of {_place(operator)} cannot be read: {' '.join(str(error).split())}"
                yield Finding(Verdict.FAIL, "accelerators", words, "mend them in the values of its chart")
                continue
            own |= {profile.name: profile for profile in given}
    counts = {name: _nodes_of(profile, found.nodes.items) for name, profile in {**SHIPPED_PROFILES, **own}.items()}
    usable = [f"{name} ({counted(count, 'node')})" for name, (_, count) in counts.items() if count]
    words = f"profiles with nodes: {', '.join(usable)}" if usable else "no node has an accelerator that a profile names"
    yield Finding(Verdict.OK, "accelerators", words)
    for name, (labelled, usable_nodes) in counts.items():
        if labelled and not usable_nodes and {**SHIPPED_PROFILES, **own}[name].node_selector:
            resource = {**SHIPPED_PROFILES, **own}[name].resource
            words = f"profile {name}: {counted(labelled, 'node')} with its labels, but no {resource} on any"
            yield Finding(Verdict.WARN, "accelerators", words, f"see whether the device plugin of {resource} runs")
        elif name in own and not usable_nodes:
            words = f"profile {name} matches no node: a job that asks for it waits until one is there"
            yield Finding(
                Verdict.WARN, "accelerators", words, "mend its nodeSelector, unless nodes are added on demand"
            )


def _nodes_of(profile: Profile, nodes: Sequence[JsonObject]) -> tuple[int, int]:
    """Nodes with the profile's labels, and those of them that have its resource."""
    labelled = [
        node
        for node in nodes
        if all(dig(node, "metadata", "labels", key) == value for key, value in profile.node_selector.items())
    ]
    with_resource = [
        node for node in labelled if quantities.parse(dig(node, "status", "allocatable", profile.resource))
    ]
    return len(labelled), len(with_resource)


def _quotas(found: Installation) -> Iterator[Finding]:
    if found.quotas.unread:
        yield Finding(Verdict.UNKNOWN, "quotas", found.quotas.unread)
        return
    tight = [line for quota in found.quotas.items for line in _tight(quota)]
    if tight:
        remedy = f"wait, ask for less, or have it raised: kubectl -n {found.namespace} describe resourcequota"
        yield Finding(Verdict.WARN, "quotas", f"near or at their limit: {', '.join(tight)}", remedy)
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
    if found.limit_ranges.unread:
        yield Finding(Verdict.UNKNOWN, "limits", found.limit_ranges.unread)
        return
    said = False
    for limits in found.limit_ranges.items:
        name = text(dig(limits, "metadata", "name"))
        for limit in objects(dig(limits, "spec", "limits")):
            for field, words, remedy in (
                ("max", "refuses a {kind} with more memory than {value}", "have LimitRange {name} raised"),
                ("default", "gives a {kind} that names no limit {value} of memory", "set resources in the manifest"),
            ):
                value = dig(limit, field, "memory")
                bytes_ = quantities.parse(value)
                if bytes_ is not None and bytes_ < _LITTLE_MEMORY:
                    said = True
                    told = words.format(kind=str(limit.get("type")).lower(), value=value)
                    hint = f"TensorFlow hardly starts in less than 1Gi: {remedy.format(name=name)}"
                    yield Finding(Verdict.WARN, "limits", f"LimitRange {name} {told}", hint)
    if not said:
        yield Finding(Verdict.OK, "limits", f"namespace {found.namespace}: no LimitRange is in the way")


def _admission(found: Installation) -> Iterator[Finding]:
    if found.refusal.unread:
        yield Finding(Verdict.UNKNOWN, "submitting", found.refusal.unread)
    elif found.refusal.items:
        yield Finding(
            Verdict.FAIL, "submitting", f"a small job is refused: {found.refusal.items[0]}", "mend what it names"
        )
    else:
        yield Finding(Verdict.OK, "submitting", f"namespace {found.namespace} takes a small job (dry run)")


_CHECKS: Final[tuple[Callable[[Installation], Iterator[Finding]], ...]] = (
    _version,
    _definition,
    _operators,
    _operator_rights,
    _rights,
    _admission,
    _gangs,
    _profiles,
    _quotas,
    _limits,
)
