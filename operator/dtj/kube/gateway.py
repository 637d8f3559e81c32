"""The verbs that the project asks of an API server, as a protocol.

:class:`dtj.kube.client.KubeGateway` speaks to a real one; the local runner has one of its own whose pods are
processes. Objects travel as JSON, undecoded where there may be many of them: a watch decodes just
the fields it needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol
from urllib.parse import quote

from dtj.api import names
from dtj.api.form import Form
from dtj.api.json import JsonObject, dig
from dtj.api.tfjob import names as tfjob
from dtj.kube.errors import AlreadyExists, Forbidden, Invalid
from dtj.kube.job_body import JobObject


@dataclass(frozen=True, slots=True)
class Resource:
    """A namespaced resource of the API."""

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """The API group; empty for that of the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def crd(self) -> str:
        """The name of its CustomResourceDefinition, if it has one."""
        return f"{self.plural}.{self.group}"

    @property
    def root(self) -> str:
        """The URL path below which the resource's namespaces lie."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    def path(self, namespace: str | None) -> str:
        """The URL path of its objects in a namespace, or in all. Raises Invalid for what cannot be a namespace."""
        scope = f"/namespaces/{_segment(namespace, of='namespace')}" if namespace is not None else ""
        return f"{self.root}{scope}/{self.plural}"

    def object_path(self, namespace: str | None, name: str, subresource: str = "") -> str:
        """The URL path of one object, or of a part of it such as ``status``. Raises Invalid for what cannot be a name.

        It is never that of a collection, whatever the name: a call that means one object must not reach all of them.
        """
        tail = f"/{quote(subresource, safe='')}" if subresource else ""
        return f"{self.path(namespace)}/{_segment(name, of=self.kind)}{tail}"


def _segment(name: str, *, of: str) -> str:
    """A name as one part of a path: an HTTP library would resolve ``.`` and ``..``, which no escape hides."""
    if problem := names.segment_problem(name):
        raise Invalid(f"{of}: {problem}")
    return quote(name, safe="")


JOBS = Resource(names.API_VERSION, names.KIND, names.PLURAL)
TFJOBS = Resource(tfjob.API_VERSION, tfjob.KIND, tfjob.PLURAL)
PODS = Resource("v1", "Pod", "pods")
SERVICES = Resource("v1", "Service", "services")
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
CLAIMS = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
EVENTS = Resource("events.k8s.io/v1", "Event", "events")
NODES = Resource("v1", "Node", "nodes")
_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
WORKLOADS = Resource(_KUEUE, "Workload", "workloads")
LOCAL_QUEUES = Resource(_KUEUE, "LocalQueue", "localqueues")
CLUSTER_QUEUES = Resource(_KUEUE, "ClusterQueue", "clusterqueues")
FLAVORS = Resource(_KUEUE, "ResourceFlavor", "resourceflavors")
WORKLOAD_PRIORITIES = Resource(_KUEUE, "WorkloadPriorityClass", "workloadpriorityclasses")


def jobs_of(form: Form) -> Resource:
    """The jobs of this form."""
    return Resource(form.api_version, form.kind, form.plural)


@dataclass(frozen=True, slots=True)
class Discovery:
    """Which of some resources the API server has."""

    served: tuple[Resource, ...]
    """Those that it has, in the order asked for."""
    versions: tuple[str, ...] = ()
    """Every ``<group>/<version>`` that it has of the groups of all of them."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind at one resource version, each as undecoded JSON."""

    items: tuple[bytes, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch; ``object`` is undecoded JSON."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: bytes


class Gateway(Protocol):
    """What the engine may ask. Every method raises :class:`dtj.kube.errors.ApiError` or one of its kinds.

    ``namespace=None`` means all namespaces. A method that is given a ``name`` asks for that object and never for a
    collection, whatever the name is: nothing but an error comes of a text that cannot be one.
    """

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        """All objects that carry the labels of ``selector``, whatever pages the server makes of them."""

    def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        """The same list page by page, for callers that keep less of each object than its JSON; with
        ``field_selector``, of those alone whose fields are so.

        The resource version of the last page is the one to watch from.
        """

    def watch(
        self, resource: Resource, *, namespace: str | None, selector: str = "", resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        """What happens after ``resource_version``, with bookmarks, until the server ends the watch.

        Raises Gone if the version is too old; the caller lists again.
        """

    async def get(self, resource: Resource, *, namespace: str | None, name: str) -> JsonObject:
        """One object; of the cluster's own where ``namespace`` is None."""

    async def discover(self, resources: Sequence[Resource]) -> Discovery:
        """Which of the resources the server has."""

    async def create(
        self, resource: Resource, *, namespace: str, body: JsonObject, dry_run: bool = False
    ) -> JsonObject:
        """Create an object; what comes back has its metadata, perhaps no more.

        ``dry_run`` asks for the server's strict verdict (unknown fields are errors) only; the object as it would be
        comes back whole.
        """

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, subresource: str = ""
    ) -> JsonObject:
        """JSON merge patch (RFC 7386). A ``metadata.resourceVersion`` or ``uid`` in it is a precondition."""

    async def patch_job_status(self, resource: Resource, *, namespace: str, name: str, patch: JsonObject) -> JobObject:
        """The same for the status of a job. The answer holds the whole job, however long."""

    async def delete(
        self, resource: Resource, *, namespace: str, name: str, uid: str = "", resource_version: str = ""
    ) -> None:
        """Delete the object. Conflict if a UID or a version is given, and it has another by now."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``errors`` are about the manifest, as ``field: what is wrong``.

    ``forbidden`` is a refusal for another reason: a quota, a policy, a missing right. ``wants_restricted`` is whether
    that is the Pod Security Standard "restricted". ``priority`` is what the cluster makes of a pod's priority class.
    """

    errors: tuple[str, ...] = ()
    forbidden: str = ""
    wants_restricted: bool = False
    priority: int | None = None


async def dry_run(gateway: Gateway, resource: Resource, *, namespace: str, body: JsonObject) -> Verdict:
    """Ask for an object; that one of its name is there is no error of the manifest. Raises ApiError otherwise."""
    try:
        taken = await gateway.create(resource, namespace=namespace, body=body, dry_run=True)
    except AlreadyExists:
        return Verdict()
    except Forbidden as error:
        if error.lacks_priority_class:
            return Verdict((f"{error.message}: create it, or name another one",))
        return Verdict(forbidden=error.message, wants_restricted=error.wants_restricted)
    except Invalid as error:
        return Verdict(error.causes or (error.message,))
    priority = dig(taken, "spec", "priority")
    return Verdict(priority=priority if isinstance(priority, int) else None)
