"""The Gateway of the local runner: objects in memory, pods as processes. The engine cannot tell it from a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from dtj.api.json import JsonObject, dig, name_of
from dtj.kube.errors import Conflict, Invalid
from dtj.kube.gateway import PODS, Discovery, Listing, Resource, WatchEvent
from dtj.kube.job_body import JobObject, job_from_object
from dtj.local.kubelet import Kubelet
from dtj.local.objects import Objects
from dtj.local.pod_command import problems_of


class LocalGateway:
    """:class:`dtj.kube.gateway.Gateway` over one machine. ``environ`` is the runner's own environment."""

    def __init__(self, objects: Objects, kubelet: Kubelet, *, environ: Mapping[str, str]) -> None:
        self._objects = objects
        self._kubelet = kubelet
        self._environ = environ

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        return self._objects.list(resource, namespace=namespace, selector=selector)

    async def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        yield await self.list(resource, namespace=namespace, selector=selector)

    def watch(
        self, resource: Resource, *, namespace: str | None, selector: str = "", resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        return self._objects.watch(resource, namespace=namespace, selector=selector, after=int(resource_version))

    async def get(self, resource: Resource, *, namespace: str | None, name: str) -> JsonObject:
        return self._objects.get((resource, namespace or "", name))

    async def discover(self, resources: Sequence[Resource]) -> Discovery:
        """One machine has nobody to ask for leave."""
        return Discovery(())

    async def create(
        self, resource: Resource, *, namespace: str, body: JsonObject, dry_run: bool = False
    ) -> JsonObject:
        if resource == PODS:
            problems = problems_of(body, self._environ)
            if problems:
                raise Invalid("; ".join(problems), status=422, reason="Invalid", causes=problems)
        if dry_run:
            return body
        created = self._objects.create((resource, namespace, name_of(body)), body)
        if resource == PODS:
            self._kubelet.start(created)
        return created

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, subresource: str = ""
    ) -> JsonObject:
        changed = self._objects.patch((resource, namespace, name), patch)
        if resource == PODS:
            self._kubelet.refresh(changed)
        return changed

    async def patch_job_status(self, resource: Resource, *, namespace: str, name: str, patch: JsonObject) -> JobObject:
        return job_from_object(await self.patch(resource, namespace=namespace, name=name, patch=patch))

    async def delete(
        self, resource: Resource, *, namespace: str, name: str, uid: str = "", resource_version: str = ""
    ) -> None:
        key = (resource, namespace, name)
        body = self._objects.get(key)
        if dig(body, "metadata", "uid") != uid:
            raise Conflict(f'{resource.plural} "{name}" has another UID', status=409, reason="Conflict")
        if resource_version not in ("", dig(body, "metadata", "resourceVersion")):
            raise Conflict(f'{resource.plural} "{name}" has been modified', status=409, reason="Conflict")
        if resource == PODS:
            self._kubelet.delete(body)
        else:
            self._objects.remove(key)
