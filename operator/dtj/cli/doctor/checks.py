"""The checks of ``dtj doctor``: what was found of an installation goes in, findings come out. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from dtj import __version__
from dtj.api import names, quantities
from dtj.api.crd import without
from dtj.api.json import JsonObject, dig, fields_of, objects
from dtj.api.profiles import SHIPPED_PROFILES, Profile
from dtj.api.schema import generated_job_schema
from dtj.api.spec import Gang
from dtj.cli.common.formatting import counted, listed, short_time
from dtj.cli.doctor import tfjobs
from dtj.cli.doctor.findings import Finding, fail, ok, unknown, warn
from dtj.client.installation import OF_A_PERSON, Answered, Installation, LeaseSeen, Operator
from dtj.client.overview import Part
from dtj.core.observed import GangApi
from dtj.engine.profile_file import ProfilesError, read_profiles
from dtj.kube.rbac import FOR_GANGS, FOR_KUEUE

OLDEST_KUBERNETES: Final = (1, 30)
"""The oldest Kubernetes that is supported: what the chart's kubeVersion says, too."""

_MAX_NAMED: Final = 3
"""This many rights are named; of more, only the number."""

_OPTIONAL: Final = {*FOR_KUEUE, *(right for rights in FOR_GANGS.values() for right in rights)}


class Check(NamedTuple):
    """``look`` at an installation, where the ``part`` of it that is looked at could be read."""

    title: str
    look: Callable[[Installation], Iterator[Finding]]
    part: Callable[[Installation], Part[Any]] | None = None


def findings(found: Installation) -> tuple[Finding, ...]:
    """All checks, in the order in which one depends on the other."""
    return tuple(replace(finding, title=check.title) for check in _CHECKS for finding in _come_of(check, found))


def _come_of(check: Check, found: Installation) -> Iterator[Finding]:
    unread = check.part(found).unread if check.part is not None else ""
    return iter([unknown(unread)]) if unread else check.look(found)


# -- the cluster -----------------------------------------------------------------------------------------------


def _version(found: Installation) -> Iterator[Finding]:
    match = re.match(r"v?(\d+)\.(\d+)", found.version)
    words = f"{found.server} answers: Kubernetes {found.version}"
    if match is None:
        yield warn(f"{words}, a version that dtj cannot read", "compare it with the versions that dtj supports")
    elif (int(match[1]), int(match[2])) < OLDEST_KUBERNETES:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        yield fail(f"{words}; {oldest} or newer is required", "upgrade the cluster")
    else:
        yield ok(words)


def _definition(found: Installation) -> Iterator[Finding]:
    install = "helm upgrade --install dtj charts/dtj, or kubectl apply -f crds/"
    if not found.served:
        yield fail(f"{names.KIND} is unknown to the cluster", install)
    elif not found.crd.items:
        yield unknown(f"it is installed; whether it matches: {found.crd.unread}")
    elif without(_schema(found.crd.items[0]), "description") != without(generated_job_schema(), "description"):
        words = f"its schema of {names.VERSION} differs from that of dtj {__version__}"
        yield warn(words, f"use one version of operator, CRD and this program: {install}")
    else:
        yield ok(f"{names.API_VERSION}, the same as that of dtj {__version__}")


def _schema(crd: JsonObject) -> JsonObject:
    versions = (each for each in objects(dig(crd, "spec", "versions")) if each.get("name") == names.VERSION)
    return fields_of(dig(next(versions, {}), "schema", "openAPIV3Schema"))


# -- operators -------------------------------------------------------------------------------------------------


def _operators(found: Installation) -> Iterator[Finding]:
    if found.operators.unread:
        yield unknown(f"{found.operators.unread}; name its namespace with --operator-namespace")
        return
    if not found.operators.items:
        yield _no_operator(found.operator_namespace)
        return
    for operator in _of_interest(found):
        yield from _operator(operator)
    serving = [_place(operator) for operator in found.operators.items if operator.serves(found.namespace)]
    if not serving:
        there = (f"{_place(each)} runs the jobs of {', '.join(each.namespaces)}" for each in found.operators.items)
        words = f"no operator runs the jobs of {found.namespace}: {'; '.join(there)}"
        yield fail(words, f"add {found.namespace} to namespaces of its chart")
    elif len(serving) > 1:
        words = f"{listed(serving)} all run the jobs of namespace {found.namespace}: each undoes the work of the others"
        yield fail(words, "uninstall all but one, or give each its own namespaces")


def _no_operator(within: str | None) -> Finding:
    if within:
        words = f"namespace {within} has no Deployment of an operator"
        return fail(words, "give --operator-namespace the operator's namespace, or leave it out")
    words = "this cluster has no Deployment of an operator; dtj cannot see one that runs elsewhere"
    return fail(words, "helm install dtj charts/dtj -n dtj-system --create-namespace")


def _of_interest(found: Installation) -> Sequence[Operator]:
    """The operators of the namespace, or all where there is none."""
    return [each for each in found.operators.items if each.serves(found.namespace)] or found.operators.items


def _place(operator: Operator) -> str:
    return f"{operator.namespace}/{operator.name}"


def _operator(operator: Operator) -> Iterator[Finding]:
    wanted, ready = dig(operator.body, "spec", "replicas"), dig(operator.body, "status", "readyReplicas")
    counts = f"{_place(operator)}: {ready or 0} of {wanted} pods are ready"
    look = f"kubectl -n {operator.namespace} describe deployment/{operator.name}"
    yield ok(counts) if ready == wanted else warn(counts, look) if ready else fail(counts, look)
    if operator.version and operator.version != __version__:
        words = f"{_place(operator)} has version {operator.version}, this program {__version__}"
        yield warn(words, "use one version for both")


def _leaders(found: Installation) -> Iterator[Finding]:
    for operator in _of_interest(found):
        if operator.lease.unread:
            yield unknown(operator.lease.unread)
        for lease in operator.lease.items:
            yield from _leader(lease, operator, found)


def _leader(lease: LeaseSeen, operator: Operator, found: Installation) -> Iterator[Finding]:
    if not lease.alive(found.at):
        age = f"{short_time((found.at - lease.renewed_at).total_seconds())} ago" if lease.renewed_at else "never"
        holder = lease.holder or "no process"
        words = f"{holder} holds the lease of {_place(operator)}, renewed {age}: no operator is working"
        yield fail(words, f"kubectl -n {operator.namespace} logs deployment/{operator.name}")
        return
    yield ok(f"{lease.holder} leads")
    if lease.throttled:
        words = f"the API server answers calls of {lease.holder} with 429 (Too Many Requests): it makes fewer of them"
        yield warn(words, "give its service account a FlowSchema with a larger share, or lower workers of its chart")


def _operator_rights(found: Installation) -> Iterator[Finding]:
    for operator in found.operators.items:
        missing = [each for each in operator.rights.items if not each.allowed and each.right not in _OPTIONAL]
        if operator.rights.unread:
            yield unknown(operator.rights.unread)
        elif missing:
            words = f"{_place(operator)} may not {_described(missing)} in namespace {found.namespace}"
            yield fail(words, "set rbac.create of its chart, and upgrade")
        elif operator.rights.items:
            yield ok(f"{_place(operator)} has all permissions that it needs in namespace {found.namespace}")


def _rights(found: Installation) -> Iterator[Finding]:
    missing = [each for each in found.rights.items if not each.allowed]
    if not missing:
        yield ok(f"in namespace {found.namespace} you may see, submit, change and delete jobs, and read logs")
        return
    blind = any(each.right == OF_A_PERSON[0] for each in missing)
    words = f"in namespace {found.namespace} you may not {_described(missing)}"
    remedy = f"ask for the role edit in namespace {found.namespace}, which the chart adds jobs to"
    yield fail(words, remedy) if blind else warn(words, remedy)


def _described(missing: Sequence[Answered]) -> str:
    """The first of the missing rights with what they are for, and how many more there are."""
    first = [f"{each.verb} {each.right.path} ({each.right.why})" for each in missing[:_MAX_NAMED]]
    more = len(missing) - len(first)
    return listed([*first, *([f"{more} more"] if more else [])])


def _admission(found: Installation) -> Iterator[Finding]:
    for message in found.refusal.items:
        yield fail(f"a small job is refused: {message}", "fix what the message names")
    if not found.refusal.items:
        yield ok(f"namespace {found.namespace} accepts a small job (dry run)")


def _gangs(found: Installation) -> Iterator[Finding]:
    if not found.gangs.items and not found.unknown_gangs:
        yield ok("none: pods of a job are scheduled one by one")
    if found.unknown_gangs:
        words = f"the cluster serves {listed(found.unknown_gangs)}, which dtj {__version__} does not know"
        yield warn(words, "upgrade what is older, the operator or the scheduler")
    for api in found.gangs.items:
        yield _gang(api, found)
    if any(api.gang is Gang.KUEUE for api in found.gangs.items):
        yield from _kueue(found)


def _gang(api: GangApi, found: Installation) -> Finding:
    """Whether the operators may use a scheduler that is there."""
    name = f"{api.gang} ({api.api_version})"
    rights = [right for right in FOR_GANGS[api.gang] if right.resource.plural == api.plural]
    answers = [(operator, each) for operator in found.operators.items for each in operator.rights.items]
    asked = [(operator, answer.allowed) for operator, answer in answers if answer.right in rights]
    for operator, allowed in asked:
        if not allowed:
            words = f"the cluster has {name}, but {_place(operator)} lacks the permission to use it"
            return warn(words, f"add {api.gang} to gangSchedulers of its chart")
    if asked:
        return ok(f"{name}, which the operator may use")
    return unknown(f"the cluster has {name}; dtj cannot see whether the operator may use it")


def _kueue(found: Installation) -> Iterator[Finding]:
    """What an operator that may use Kueue cannot read in the cluster, such as one for some namespaces only."""
    for operator in found.operators.items:
        denied = [answer.right for answer in operator.rights.items if not answer.allowed]
        if any(right in FOR_GANGS[Gang.KUEUE] for right in denied):
            continue
        for right in denied:
            if right in FOR_KUEUE:
                words = f"{_place(operator)} may not get {right.path} ({right.why})"
                yield warn(words, f"bind a ClusterRole with get on {right.path} to its service account")


# -- what jobs need --------------------------------------------------------------------------------------------


def _profiles(found: Installation) -> Iterator[Finding]:
    own: dict[str, Profile] = {}
    for operator in found.operators.items:
        if operator.profiles.unread:
            yield unknown(operator.profiles.unread)
        for file in operator.profiles.items:
            try:
                own |= {profile.name: profile for profile in read_profiles(file, where=f"of {_place(operator)}")}
            except ProfilesError as error:
                yield fail(str(error), "fix them in the values of its chart")
    profiles = {**SHIPPED_PROFILES, **own}
    nodes = {name: _nodes_of(profile, found.nodes.items) for name, profile in profiles.items()}
    usable = [f"{name} ({counted(count, 'node')})" for name, (_, count) in nodes.items() if count]
    none = "no node has an accelerator that a profile names"
    yield ok(f"profiles with nodes: {', '.join(usable)}" if usable else none)
    for name, profile in profiles.items():
        labelled, count = nodes[name]
        if labelled and not count and profile.node_selector:
            words = f"profile {name}: {counted(labelled, 'node')} with its labels, but no {profile.resource} on any"
            yield warn(words, f"check that the device plugin of {profile.resource} runs")
        elif name in own and not count:
            words = f"profile {name} matches no node: a job that requests it waits until there is one"
            yield warn(words, "fix its nodeSelector, unless nodes are created on demand")


def _nodes_of(profile: Profile, nodes: Sequence[JsonObject]) -> tuple[int, int]:
    """How many nodes have the profile's labels, and how many of them its resource, too."""
    wanted = profile.node_selector.items()
    labelled = [node for node in nodes if wanted <= fields_of(dig(node, "metadata", "labels")).items()]
    amounts = (quantities.parse(dig(node, "status", "allocatable", profile.resource)) for node in labelled)
    return len(labelled), sum(bool(amount) for amount in amounts)


_CHECKS: Final = (
    Check("cluster", _version),
    Check("CRD", _definition),
    Check("operator", _operators),
    Check("leader", _leaders),
    Check("operator's rights", _operator_rights),
    Check("your rights", _rights, lambda found: found.rights),
    Check("submitting", _admission, lambda found: found.refusal),
    Check("gang schedulers", _gangs, lambda found: found.gangs),
    Check("TFJobs", tfjobs.findings),
    Check("accelerators", _profiles, lambda found: found.nodes),
)
