"""Whether Kueue would admit the jobs of a namespace: its queues, their quota, and what waiting jobs request. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

from dtj.api import quantities
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.spec import Gang
from dtj.cli.common.formatting import counted
from dtj.cli.doctor.findings import Finding, Verdict
from dtj.client.installation import Installation, Queues, flavors_of
from dtj.core.gang.group import requests
from dtj.kube.rbac import FOR_GANGS, FOR_KUEUE

TITLE: Final = "queues"

_MAX_JOBS: Final = 5
"""This many waiting jobs are named that cannot be admitted."""

_PODS: Final = "pods"
"""The resource by which a queue limits the number of pods."""


def findings(found: Installation) -> Iterator[Finding]:
    """A line for each LocalQueue, and for each waiting job that its queue can never admit."""
    kueue = next((api for api in found.gangs.items if api.gang is Gang.KUEUE), None)
    if kueue is None:
        return
    yield from _rights(found)
    queues = found.queues
    if queues.local.unread:
        yield Finding(Verdict.UNKNOWN, TITLE, queues.local.unread)
        return
    if not queues.local.items:
        words = f"namespace {found.namespace} has no LocalQueue: jobs that name no queue start outside of Kueue"
        yield Finding(Verdict.OK, TITLE, words)
    for queue in queues.local.items:
        yield from _local_queue(queue, found)
    yield from _waiting(found)


def _rights(found: Installation) -> Iterator[Finding]:
    """What an operator that may use Kueue cannot read in the cluster, such as one for some namespaces only."""
    for operator in found.operators.items:
        denied = [answer.right for answer in operator.rights.items if not answer.allowed]
        if any(right in FOR_GANGS[Gang.KUEUE] for right in denied):
            continue
        for right in denied:
            if right in FOR_KUEUE:
                words = f"{operator.namespace}/{operator.name} may not get {right.path} ({right.why})"
                remedy = f"bind a ClusterRole with get on {right.path} to its service account: such jobs do not start"
                yield Finding(Verdict.WARN, TITLE, words, remedy)


# -- queues ----------------------------------------------------------------------------------------------------


def _local_queue(local: JsonObject, found: Installation) -> Iterator[Finding]:
    name, behind = text(dig(local, "metadata", "name")), text(dig(local, "spec", "clusterQueue"))
    where = f"LocalQueue {name}"
    active = _active(local)
    cluster = found.queues.cluster.get(behind)
    queue = cluster.items[0] if cluster is not None and cluster.items else None
    if not active:
        words = f"{where} has no condition Active: Kueue's manager has not looked at it"
        yield Finding(Verdict.WARN, TITLE, words, "check that the Deployment of Kueue's manager is ready")
    elif active.get("status") != "True":
        yield _inactive(where, behind, local, queue)
    elif queue is None:
        unread = f"; its quota cannot be read: {cluster.unread}" if cluster is not None and cluster.unread else ""
        yield Finding(Verdict.OK, TITLE, f"{where} admits jobs (ClusterQueue {behind}{unread})")
    else:
        quota = ", ".join(f"{resource} {quantity}" for resource, quantity in _totals(queue).items()) or "no quota"
        waiting = dig(local, "status", "pendingWorkloads")
        how_many = f"; {counted(waiting, 'job')} waiting" if isinstance(waiting, int) and waiting else ""
        yield Finding(Verdict.OK, TITLE, f"{where} admits jobs (ClusterQueue {behind}): {quota}{how_many}")
        yield from _namespace(behind, queue, found)
        yield from _nodes(behind, queue, found)


def _inactive(where: str, behind: str, local: JsonObject, queue: JsonObject | None) -> Finding:
    """Why a LocalQueue admits no job: the reasons are those of its controller in Kueue."""
    active = _active(local)
    reason, message = text(active.get("reason")), text(active.get("message"))
    if reason == "ClusterQueueDoesNotExist":
        words = f"{where} admits no job: its ClusterQueue {behind or '(none)'} does not exist"
        remedy = "create it, or create the LocalQueue again with another spec.clusterQueue"
    elif reason == "Stopped":
        words = f"{where} admits no job: its spec.stopPolicy is {text(dig(local, 'spec', 'stopPolicy'))}"
        remedy = "set it to None to go on"
    elif queue is not None and _active(queue).get("status") == "False":
        stopped = text(_active(queue).get("reason")) == "Stopped"
        words = f"{where} admits no job: ClusterQueue {behind}: {text(_active(queue).get('message'))}"
        remedy = "set its spec.stopPolicy to None to go on" if stopped else "create or correct what the message names"
    else:
        words = f"{where} admits no job (ClusterQueue {behind}): {message or reason}"
        remedy = f"kubectl describe clusterqueue {behind}"
    return Finding(Verdict.FAIL, TITLE, words, remedy)


def _active(queue: JsonObject) -> JsonObject:
    """The condition Active; empty if there is none."""
    return next((each for each in objects(dig(queue, "status", "conditions")) if each.get("type") == "Active"), {})


def _namespace(name: str, queue: JsonObject, found: Installation) -> Iterator[Finding]:
    """A LocalQueue is active even if its ClusterQueue takes no job of the namespace."""
    selector = dig(queue, "spec", "namespaceSelector")
    if not isinstance(selector, dict):
        words = f"ClusterQueue {name} admits jobs of no namespace: it has no namespaceSelector"
        yield Finding(Verdict.FAIL, TITLE, words, "set spec.namespaceSelector; {} matches all namespaces")
    elif found.queues.namespace.items:
        labels = dig(found.queues.namespace.items[0], "metadata", "labels")
        if not _selects(selector, labels if isinstance(labels, dict) else {}):
            words = f"ClusterQueue {name} admits no job of namespace {found.namespace}: its namespaceSelector differs"
            yield Finding(Verdict.FAIL, TITLE, words, "change the selector, or the labels of the namespace")


def _selects(selector: JsonObject, labels: Mapping[str, object]) -> bool:
    wanted = selector.get("matchLabels")
    if isinstance(wanted, dict) and any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(each, labels) for each in objects(selector.get("matchExpressions")))


def _holds(expression: JsonObject, labels: Mapping[str, object]) -> bool:
    key, values = text(expression.get("key")), expression.get("values")
    among = key in labels and isinstance(values, list) and labels[key] in values
    match expression.get("operator"):
        case "In":
            return among
        case "NotIn":
            return not among
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _nodes(name: str, queue: JsonObject, found: Installation) -> Iterator[Finding]:
    """A flavor whose labels no node has: Kueue admits jobs to it, and their pods wait for a node."""
    if found.nodes.unread:
        return
    for flavor in flavors_of(queue):
        part = found.queues.flavors.get(flavor)
        labels = dig(part.items[0], "spec", "nodeLabels") if part is not None and part.items else None
        if isinstance(labels, dict) and labels and not any(_has(node, labels) for node in found.nodes.items):
            wanted = ", ".join(f"{key}={value}" for key, value in labels.items())
            words = f"no node has the labels of ResourceFlavor {flavor} of ClusterQueue {name} ({wanted})"
            remedy = "correct its nodeLabels, unless nodes are created on demand: pods wait for such a node"
            yield Finding(Verdict.WARN, TITLE, words, remedy)


def _has(node: JsonObject, labels: JsonObject) -> bool:
    return all(dig(node, "metadata", "labels", key) == value for key, value in labels.items())


# -- what jobs request -----------------------------------------------------------------------------------------


def _waiting(found: Installation) -> Iterator[Finding]:
    """Jobs without quota that their queue cannot admit, however long they wait."""
    if found.queues.workloads.unread:
        yield Finding(Verdict.UNKNOWN, TITLE, f"what jobs wait for: {found.queues.workloads.unread}")
        return
    waiting = (each for each in found.queues.workloads.items if not _is_true(each, "QuotaReserved", "Finished"))
    hopeless = [
        Finding(
            Verdict.WARN,
            TITLE,
            f"job {text(dig(workload, 'metadata', 'name'))} is never admitted: {never[0]}",
            never[1],
        )
        for workload in waiting
        if (never := _never(workload, found.queues)) is not None
    ]
    yield from hopeless[:_MAX_JOBS]
    if len(hopeless) > _MAX_JOBS:
        words = f"{len(hopeless) - _MAX_JOBS} more jobs wait for what their queues do not have"
        yield Finding(Verdict.WARN, TITLE, words, "dtj status NAME shows the reason of each")


def _is_true(workload: JsonObject, *kinds: str) -> bool:
    """Whether one of these conditions is True."""
    conditions = objects(dig(workload, "status", "conditions"))
    return any(each.get("type") in kinds and each.get("status") == "True" for each in conditions)


def _never(workload: JsonObject, queues: Queues) -> tuple[str, str] | None:
    """Why the queue of a Workload can never admit it, and what to do; None if that is not known."""
    wanted = text(dig(workload, "spec", "queueName"))
    local = next((each for each in queues.local.items if dig(each, "metadata", "name") == wanted), None)
    if local is None:
        return f"LocalQueue {wanted} does not exist", "create it, or set another in runPolicy.scheduling.queue"
    if dig(workload, "spec", "active") is False:
        return "its Workload is not active", "set spec.active of the Workload to true to go on"
    name = text(dig(local, "spec", "clusterQueue"))
    cluster = queues.cluster.get(name)
    if cluster is None or not cluster.items:
        return None
    queue = cluster.items[0]
    for pods in objects(dig(workload, "spec", "podSets")):
        for resource, amount in _requests_of(pods).items():
            covers = _quotas(queue, resource)
            if not amount or (resource == _PODS and not covers):
                continue
            if not covers:
                why = f"pod set {text(pods.get('name'))} requests {resource}, of which ClusterQueue {name} has no quota"
                return why, f"add {resource} to spec.resourceGroups of the ClusterQueue"
            if not _in_cohort(queue) and amount > max(covers):
                most = f"ClusterQueue {name} has {_shown(resource, max(covers))} in one flavor"
                why = f"pod set {text(pods.get('name'))} requests {_shown(resource, amount)} {resource}, {most}"
                return why, "request less, or raise its nominalQuota"
    return None


def _requests_of(pods: JsonObject) -> dict[str, Fraction]:
    """What all pods of a pod set request; partly if that is enough for Kueue."""
    least = pods.get("minCount")
    count = least if isinstance(least, int) else pods.get("count")
    number = count if isinstance(count, int) else 0
    of_one = requests({"spec": dig(pods, "template", "spec")})
    return {**{resource: amount * number for resource, amount in of_one.items()}, _PODS: Fraction(number)}


def _in_cohort(queue: JsonObject) -> bool:
    """Whether a ClusterQueue may borrow: ``cohort`` is the name of the field in v1beta1."""
    return any(dig(queue, "spec", key) for key in ("cohortName", "cohort"))


def _resources(queue: JsonObject) -> Iterator[JsonObject]:
    """The quota of each flavor of a ClusterQueue, resource by resource."""
    for group in objects(dig(queue, "spec", "resourceGroups")):
        for flavor in objects(group.get("flavors")):
            yield from objects(flavor.get("resources"))


def _quotas(queue: JsonObject, resource: str) -> list[Fraction]:
    """The nominal quota of a resource in each flavor that has it."""
    return [
        quantities.parse(each.get("nominalQuota")) or Fraction()
        for each in _resources(queue)
        if each.get("name") == resource
    ]


def _totals(queue: JsonObject) -> dict[str, str]:
    """The nominal quota of each resource, of all flavors together; as it is written if there is only one."""
    written: dict[str, list[str]] = {}
    for each in _resources(queue):
        written.setdefault(text(each.get("name")), []).append(str(each.get("nominalQuota")))
    return {
        resource: given[0] if len(given) == 1 else _shown(resource, sum(_quotas(queue, resource), Fraction()))
        for resource, given in written.items()
    }


def _shown(resource: str, amount: Fraction) -> str:
    return quantities.as_memory(amount) if resource == "memory" else quantities.shown(amount)
