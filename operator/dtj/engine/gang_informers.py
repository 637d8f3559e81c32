"""Informers of PodGroups and Workloads, the objects of the gang schedulers that this cluster has.

No API is asked for before a policy wants it (:class:`~dtj.core.actions.LookForGangs`): most clusters have none, and an
operator that lists what is not served would log errors forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NoReturn

from dtj.api.form import Form
from dtj.api.json import JsonObject, condition_of, dig, fields_of, objects, text
from dtj.api.spec import Gang
from dtj.core.admission.scheduler_choice import APIS, LOOK_AGAIN, unknown_versions
from dtj.core.admission.workloads import DEFAULT_QUEUE
from dtj.core.messages import cut
from dtj.core.observed import Flavor, GangApi, GangObject, GangsFound
from dtj.engine.state import ClusterState
from dtj.engine.supervision import Supervisor
from dtj.kube.errors import ApiError, Forbidden, NotFound
from dtj.kube.gateway import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, WORKLOAD_PRIORITIES, Gateway, Resource
from dtj.kube.informer import Change, Informer
from dtj.kube.observed import gang_from, resource_of
from dtj.kube.records import decode_gang, gang_from_object
from dtj.kube.waiting import loop_time

FRESH_SECONDS: Final = 30.0
"""For how long one answer serves all jobs that ask."""

SHOWN_WITHIN: Final = 20.0
"""Seconds after which the API of a scheduler counts as one that fails: all jobs that ask wait for it until then."""


REMOVED_AFTER: Final = 300.0
"""Seconds for which an API that was served is missing before its scheduler counts as removed. A CRD that is being
replaced is missing for moments."""


_BY_RESOURCE: Final = {resource_of(api): api for api in APIS}


def seen_gang(resource: Resource, body: JsonObject) -> GangObject | None:
    """A PodGroup or Workload out of its JSON; None if the resource is neither."""
    api = _BY_RESOURCE.get(resource)
    return gang_from(api, gang_from_object(body)) if api is not None else None


class Gangs:
    """Finds the schedulers, and has their objects in the state from then on."""

    def __init__(
        self,
        gateway: Gateway,
        state: ClusterState,
        *,
        namespaces: Sequence[str | None],
        form: Form,
        on_change: Callable[[Resource, Change[GangObject]], None],
        on_other_apis: Callable[[], None],
        now: Callable[[], datetime],
        supervisor: Supervisor,
        on_unreadable: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self._gateway = gateway
        self._state = state
        self._namespaces = tuple(namespaces)
        self._form = form
        self._on_change = on_change
        self._on_other_apis = on_other_apis
        self._now = now
        self._supervisor = supervisor
        self._on_unreadable = on_unreadable
        self._looking = asyncio.Lock()
        self._fresh_until = 0.0
        self._new: asyncio.Queue[Informer[Any, Any]] = asyncio.Queue()
        self._informers: dict[GangApi, dict[str | None, Informer[Any, Any]]] = {}
        self._denied: dict[GangApi, dict[str | None, Forbidden]] = {}
        """The namespaces that forbade it to list the objects of these APIs, while others allowed it."""

        self._missing_since: dict[GangApi, float] = {}
        """Since when the APIs are not served that were."""

    async def run(self) -> NoReturn:
        """Keep the informers going that :meth:`look` finds a need for; until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._supervisor.keep("removed gang schedulers", self._look_for_removed))
            while True:
                informer = await self._new.get()
                name = f"informer of {informer.resource.plural}"
                group.create_task(self._supervisor.keep(name, informer.run), name=name)

    async def _look_for_removed(self) -> NoReturn:
        """Look again while objects of a scheduler cannot be listed: a job that waits in its queue asks for nothing, and
        nothing would tell it that the scheduler was removed."""
        while True:
            await asyncio.sleep(LOOK_AGAIN.total_seconds())
            if not any(informer.failing for informers in self._informers.values() for informer in informers.values()):
                continue
            before = self._state.gangs_found
            with suppress(ApiError):
                await self.look()
            found = self._state.gangs_found
            if before is None or found is None:
                continue
            if (found.apis, found.hidden) != (before.apis, before.hidden):
                self._on_other_apis()

    async def look(self) -> None:
        """Find out which APIs are served, and have the objects of each in the state. Raises ApiError.

        One that is watched counts as served for a while: an API server that starts, or a CRD that is being replaced,
        lacks it for a moment, and jobs that run must not lose their queue. One that stays away was removed: the jobs
        that could do without it must not wait for it.
        """
        async with self._looking:
            known = self._state.gangs_found
            if known is not None and loop_time() < self._fresh_until:
                # By a clock that was set, it may look old.
                self._state.gangs_found = replace(known, at=self._now())
                return
            found = await self._gateway.discover(tuple(_BY_RESOURCE))
            there = [api for api in APIS if self._is_there(api, served=resource_of(api) in found.served)]
            errors = dict(zip(there, await asyncio.gather(*map(self._show, there)), strict=True))
            usable = tuple(api for api, error in errors.items() if error is None)
            self._state.gangs_found = GangsFound(
                apis=usable,
                at=self._now(),
                denied=tuple(api for api, error in errors.items() if isinstance(error, Forbidden)),
                unknown=unknown_versions(found.versions),
                failing={
                    api.gang: cut(error.message)
                    for api, error in errors.items()
                    if error is not None and not isinstance(error, Forbidden)
                },
                hidden=self._hidden(usable),
            )
            self._fresh_until = loop_time() + FRESH_SECONDS

    async def flavor(self, name: str) -> Flavor:
        """A ResourceFlavor of Kueue. Raises ApiError."""
        body = await self._gateway.get(FLAVORS, namespace=None, name=name)
        return Flavor(
            node_labels={key: text(value) for key, value in fields_of(dig(body, "spec", "nodeLabels")).items()},
            tolerations=tuple(objects(dig(body, "spec", "tolerations"))),
            read_at=self._now(),
        )

    async def workload_priority(self, name: str) -> int:
        """The value of a WorkloadPriorityClass of Kueue. Raises ApiError."""
        value = (await self._gateway.get(WORKLOAD_PRIORITIES, namespace=None, name=name)).get("value")
        return value if isinstance(value, int) else 0

    async def has_default_queue(self, namespace: str) -> bool:
        """Whether Kueue has a default LocalQueue for the jobs of a namespace. Raises ApiError."""
        try:
            await self._gateway.get(LOCAL_QUEUES, namespace=namespace, name=DEFAULT_QUEUE)
        except NotFound as error:
            if not error.reason:  # LocalQueues are not served, perhaps not yet: that says nothing of this one
                raise
            return False
        return True

    async def why_inactive(self, name: str) -> str:
        """Why a ClusterQueue admits no job, in Kueue's words; empty if it does. Raises ApiError."""
        body = await self._gateway.get(CLUSTER_QUEUES, namespace=None, name=name)
        active = condition_of(dig(body, "status"), "Active")
        return text(active.get("message")) if active.get("status") == "False" else ""

    async def _show(self, api: GangApi) -> ApiError | None:
        """Have the objects of an API in the state. Returns what keeps them from it: an informer would wait forever.

        Raises ApiError if there is no answer: nothing is known then.
        """
        if self._shows(api):
            return None
        try:
            async with asyncio.timeout(SHOWN_WITHIN):
                denied = await self._ask(api)
                if len(denied) == len(self._namespaces):
                    return next(iter(denied.values()))
                self._denied[api] = denied
                self._watch(api)
                for namespace, informer in self._informers[api].items():
                    if namespace not in denied:
                        await informer.synced.wait()
        except TimeoutError:
            return ApiError(f"{api.plural} of {api.api_version} are not listed within {SHOWN_WITHIN:.0f} s")
        except ApiError as error:
            if error.status == 0:
                raise
            return error
        return None

    async def _ask(self, api: GangApi) -> dict[str | None, Forbidden]:
        """List the objects of an API once. Returns the namespaces that forbid it. Raises ApiError."""
        denied: dict[str | None, Forbidden] = {}
        for namespace in self._namespaces:
            try:
                await self._gateway.list(resource_of(api), namespace=namespace, selector=self._form.selector)
            except Forbidden as error:
                denied[namespace] = error
        return denied

    def _hidden(self, apis: Sequence[GangApi]) -> dict[str | None, dict[Gang, str]]:
        """The namespaces in which the objects of these APIs could not be listed yet, and why."""
        hidden: dict[str | None, dict[Gang, str]] = {}
        for api in apis:
            for namespace, error in self._denied[api].items():
                if not self._informers[api][namespace].synced.is_set():
                    hidden.setdefault(namespace, {})[api.gang] = cut(error.message)
        return hidden

    def _is_there(self, api: GangApi, *, served: bool) -> bool:
        """Whether an API can be used, or is missing for a moment at most."""
        if served or not self._shows(api):
            self._missing_since.pop(api, None)
            return served
        return loop_time() - self._missing_since.setdefault(api, loop_time()) < REMOVED_AFTER

    def _shows(self, api: GangApi) -> bool:
        """Whether the objects are in the state, save those of namespaces that forbid it."""
        informers = self._informers.get(api)
        if informers is None:
            return False
        denied = self._denied[api]
        return all(informer.synced.is_set() or namespace in denied for namespace, informer in informers.items())

    def _watch(self, api: GangApi) -> None:
        if api in self._informers:
            return
        self._informers[api] = {
            namespace: Informer(
                self._gateway,
                resource_of(api),
                namespace=namespace,
                selector=self._form.selector,
                decode=decode_gang,
                convert=partial(gang_from, api, form=self._form),
                on_change=partial(self._on_change, resource_of(api)),
                on_unreadable=self._on_unreadable,
            )
            for namespace in self._namespaces
        }
        for informer in self._informers[api].values():
            self._new.put_nowait(informer)
