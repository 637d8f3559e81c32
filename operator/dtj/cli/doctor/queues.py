"""Whether Kueue would admit jobs of a namespace by its queues. Why one job waits, its own status says. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dtj.api.json import JsonObject, condition_of, dig, fields_of, items_of, objects, text
from dtj.api.spec import Gang
from dtj.cli.common.formatting import counted
from dtj.cli.doctor.findings import Finding, fail, ok, unknown, warn
from dtj.client.installation import Installation, flavors_of
from dtj.kube.rbac import FOR_GANGS, FOR_KUEUE


def findings(found: Installation) -> Iterator[Finding]:
    """What is to be said of Kueue and of each LocalQueue; nothing in a cluster without Kueue."""
    kueue = next((api for api in found.gangs.items if api.gang is Gang.KUEUE), None)
    if kueue is None:
        return
    yield from _rights(found)
    local = found.queues.local
    if local.unread:
        yield unknown(local.unread)
    elif not local.items:
        yield ok(f"namespace {found.namespace} has no LocalQueue: jobs that name no queue start outside of Kueue")
    for queue in local.items:
        yield from _local_queue(queue, found)


def _rights(found: Installation) -> Iterator[Finding]:
    """What an operator that may use Kueue cannot read in the cluster, such as one for some namespaces only."""
    for operator in found.operators.items:
        denied = [answer.right for answer in operator.rights.items if not answer.allowed]
        if any(right in FOR_GANGS[Gang.KUEUE] for right in denied):
            continue
        for right in denied:
            if right in FOR_KUEUE:
                words = f"{operator.namespace}/{operator.name} may not get {right.path} ({right.why})"
                remedy = f"bind a ClusterRole with get on {right.path} to its service account"
                yield warn(words, remedy)


def _local_queue(local: JsonObject, found: Installation) -> Iterator[Finding]:
    behind = text(dig(local, "spec", "clusterQueue"))
    where = f"LocalQueue {text(dig(local, 'metadata', 'name'))}"
    active = _active(local)
    cluster = found.queues.cluster.get(behind)
    queue = cluster.items[0] if cluster is not None and cluster.items else None
    if not active:
        words = f"{where} has no condition Active: Kueue's manager has not looked at it"
        yield warn(words, "check that the Deployment of Kueue's manager is ready")
    elif active.get("status") != "True":
        yield _inactive(where, behind, local, queue)
    elif queue is None:
        unread = (
            f"; its selector and flavors cannot be read: {cluster.unread}"
            if cluster is not None and cluster.unread
            else ""
        )
        yield ok(f"{where} admits jobs (ClusterQueue {behind}{unread})")
    else:
        waiting = dig(local, "status", "pendingWorkloads")
        how_many = f"; {counted(waiting, 'job')} waiting" if isinstance(waiting, int) and waiting else ""
        yield ok(f"{where} admits jobs (ClusterQueue {behind}){how_many}")
        yield from _namespace(behind, queue, found)
        yield from _nodes(behind, queue, found)


def _inactive(where: str, behind: str, local: JsonObject, queue: JsonObject | None) -> Finding:
    """Why a LocalQueue admits no job: the reasons are those of its controller in Kueue."""
    active, of_queue = _active(local), _active(queue)
    reason = text(active.get("reason"))
    if reason == "ClusterQueueDoesNotExist":
        words = f"its ClusterQueue {behind or '(none)'} does not exist"
        remedy = "create it, or create the LocalQueue again with another spec.clusterQueue"
    elif reason == "Stopped":
        words = f"its spec.stopPolicy is {text(dig(local, 'spec', 'stopPolicy'))}"
        remedy = "set it to None to go on"
    elif of_queue.get("status") == "False":
        words, stopped = f"ClusterQueue {behind}: {text(of_queue.get('message'))}", of_queue.get("reason") == "Stopped"
        remedy = "set its spec.stopPolicy to None to go on" if stopped else "create or correct what the message names"
    else:
        words = f"ClusterQueue {behind}: {text(active.get('message')) or reason}"
        remedy = f"kubectl describe clusterqueue {behind}"
    return fail(f"{where} admits no job: {words}", remedy)


def _active(queue: JsonObject | None) -> JsonObject:
    return condition_of(dig(queue, "status"), "Active")


def _namespace(name: str, queue: JsonObject, found: Installation) -> Iterator[Finding]:
    """A LocalQueue is active even if its ClusterQueue takes no job of the namespace."""
    selector = dig(queue, "spec", "namespaceSelector")
    if not isinstance(selector, dict):
        words = f"ClusterQueue {name} admits jobs of no namespace: it has no namespaceSelector"
        yield fail(words, "set spec.namespaceSelector; {} matches all namespaces")
        return
    for namespace in found.queues.namespace.items:
        if not _selects(selector, fields_of(dig(namespace, "metadata", "labels"))):
            words = f"ClusterQueue {name} admits no job of namespace {found.namespace}: its namespaceSelector differs"
            yield fail(words, "change the selector, or the labels of the namespace")


def _selects(selector: JsonObject, labels: Mapping[str, object]) -> bool:
    if any(labels.get(key) != value for key, value in fields_of(selector.get("matchLabels")).items()):
        return False
    return all(_holds(each, labels) for each in objects(selector.get("matchExpressions")))


def _holds(expression: JsonObject, labels: Mapping[str, object]) -> bool:
    key = text(expression.get("key"))
    among = key in labels and labels[key] in items_of(expression.get("values"))
    held = {"In": among, "NotIn": not among, "Exists": key in labels}
    return held.get(text(expression.get("operator")), key not in labels)


def _nodes(name: str, queue: JsonObject, found: Installation) -> Iterator[Finding]:
    """A flavor whose labels no node has: Kueue admits jobs to it, and their pods wait for a node."""
    if found.nodes.unread:
        return
    for flavor in flavors_of(queue):
        part = found.queues.flavors.get(flavor)
        labels = fields_of(dig(part.items[0], "spec", "nodeLabels")) if part is not None and part.items else {}
        if labels and not any(has_labels(node, labels) for node in found.nodes.items):
            wanted = ", ".join(f"{key}={value}" for key, value in labels.items())
            words = f"no node has the labels of ResourceFlavor {flavor} of ClusterQueue {name} ({wanted})"
            remedy = "correct its nodeLabels, unless nodes are created on demand: pods wait for such a node"
            yield warn(words, remedy)


def has_labels(node: JsonObject, labels: Mapping[str, object]) -> bool:
    """Whether a node has all of these."""
    return all(dig(node, "metadata", "labels", key) == value for key, value in labels.items())
