"""A FakeGateway that is spoken to by HTTP, on loopback: for clients that bring their own, such as kopf.

Enough of an API server for discovery, lists, watches, creations, patches and deletions. What the gateway is asked to do
(fail, break watches, lag, restore a backup) reaches the client as a real API server would say it: an error before the
first line of a watch is an HTTP status, one after it an ERROR line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path

from aiohttp import web
from pydantic import JsonValue

from dtj.api import names
from dtj.api.json import JsonObject, dig, text
from dtj.kube.errors import ApiError
from dtj.kube.gateway import Resource, WatchEvent
from support.fake_gateway import FakeGateway
from support.kubeconfigs import kubeconfig
from support.web_server import served

_KINDS = {names.PLURAL: names.KIND, "pods": "Pod", "services": "Service"}

_OPENING_SECONDS = 0.05
"""A watch that has not failed for so long has begun well."""


class HttpApi:
    """Serves ``gateway`` while it is entered.

    ``asked`` counts requests as ``verb plural``, and watches that have begun as ``open plural``.
    """

    def __init__(self, gateway: FakeGateway) -> None:
        self.gateway = gateway
        self.asked: Counter[str] = Counter()
        self.url = ""

    async def __aenter__(self) -> HttpApi:
        self._server = served(self._handle)
        self.url = await self._server.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__(None, None, None)

    def kubeconfig(self, directory: Path) -> str:
        """A kubeconfig file with this server in it."""
        return str(kubeconfig(directory, self.url))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        found = _discovery(parts)
        if found is not None:
            return web.json_response(found)
        try:
            return await self._carry_out(request, parts)
        except ApiError as error:
            return web.json_response(_status(error), status=error.status or 500)

    async def _carry_out(self, request: web.Request, parts: list[str]) -> web.StreamResponse:
        version, rest = ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        namespace, rest = (rest[1], rest[2:]) if rest[0] == "namespaces" else (None, rest)
        plural, name, *subresource = [*rest, ""]
        resource = Resource(version, _KINDS.get(plural, ""), plural)
        selector = request.query.get("labelSelector", "")
        reads = "watch" if "watch" in request.query else "list"
        verb = reads if request.method == "GET" and not name else request.method
        self.asked[f"{verb} {plural}"] += 1
        match verb:
            case "watch":
                return await self._watch(request, resource, namespace, selector)
            case "list":
                listing = await self.gateway.list(resource, namespace=namespace, selector=selector)
                items = b",".join(listing.items).decode()
                head = json.dumps({"kind": f"{resource.kind}List", "apiVersion": version})[:-1]
                metadata = json.dumps({"resourceVersion": listing.resource_version})
                body = f'{head}, "metadata": {metadata}, "items": [{items}]}}'
                return web.Response(text=body, content_type="application/json")
            case "GET":
                return web.json_response(await self.gateway.get(resource, namespace=namespace, name=name))
        sent: JsonObject = json.loads(await request.read())
        assert namespace is not None
        match verb:
            case "POST":
                dry_run = "dryRun" in request.query
                created = await self.gateway.create(resource, namespace=namespace, body=sent, dry_run=dry_run)
                return web.json_response(created, status=201)
            case "PATCH":
                part = subresource[0] if subresource else ""
                patched = await self.gateway.patch(
                    resource, namespace=namespace, name=name, patch=sent, subresource=part
                )
                return web.json_response(patched)
        wanted = dig(sent, "preconditions")
        await self.gateway.delete(
            resource,
            namespace=namespace,
            name=name,
            uid=text(dig(wanted, "uid")),
            resource_version=text(dig(wanted, "resourceVersion")),
        )
        return web.json_response({"kind": "Status", "status": "Success", "metadata": {}})

    async def _watch(
        self, request: web.Request, resource: Resource, namespace: str | None, selector: str
    ) -> web.StreamResponse:
        events = self.gateway.watch(
            resource, namespace=namespace, selector=selector, resource_version=request.query["resourceVersion"]
        )
        first = asyncio.ensure_future(anext(events))
        await asyncio.wait([first], timeout=_OPENING_SECONDS)
        if first.done() and (error := first.exception()) is not None:
            raise error
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.asked[f"open {resource.plural}"] += 1
        with contextlib.suppress(ConnectionError):
            try:
                await _write(response, await first)
                async for event in events:
                    await _write(response, event)
            except ApiError as error:
                await response.write(json.dumps({"type": "ERROR", "object": _status(error)}).encode() + b"\n")
            finally:
                first.cancel()
        return response


async def _write(response: web.StreamResponse, event: WatchEvent) -> None:
    await response.write(b'{"type": "%s", "object": %s}\n' % (event.type.encode(), event.object))


def _status(error: ApiError) -> JsonObject:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": error.status or 500,
        "reason": error.reason,
        "message": error.message,
        "details": {"causes": [_cause(cause) for cause in error.causes]},
    }


_SERVED = {
    "v1": ("namespaces", "pods", "services"),
    names.API_VERSION: (names.PLURAL,),
    "apiextensions.k8s.io/v1": ("customresourcedefinitions",),
}


def _discovery(parts: list[str]) -> JsonObject | None:
    """What the server says of itself; None where the path is one of objects."""
    match parts:
        case ["version"]:
            return {"gitVersion": "v1.35.0"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            return {"kind": "APIGroupList", "groups": [_group(each) for each in _SERVED if "/" in each]}
        case ["api", _] | ["apis", _, _] if (version := "/".join(parts[1:])) in _SERVED:
            return {"groupVersion": version, "resources": [_resource(plural) for plural in _SERVED[version]]}
    return None


def _group(group_version: str) -> JsonObject:
    group, _, version = group_version.partition("/")
    entry: JsonObject = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resource(plural: str) -> JsonObject:
    kind = _KINDS.get(plural, plural.title())
    verbs: list[JsonValue] = ["create", "delete", "get", "list", "patch", "watch"]
    return {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": plural in _KINDS, "verbs": verbs}


def _cause(sentence: str) -> JsonObject:
    field, _, message = sentence.partition(": ")
    return {"field": field, "message": message}
