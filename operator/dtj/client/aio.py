"""The client for asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Final, Self

from dtj import __version__
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, name_of, text
from dtj.api.names import Condition
from dtj.api.printable import one_line
from dtj.client import job_names
from dtj.client.checks import Manifest, Source, manifests_of, placed
from dtj.client.code_manifest import owned_by, with_code
from dtj.client.code_pack import CodePack, pack
from dtj.client.errors import InvalidManifest, InvalidRequest, JobGone, WaitTimeout
from dtj.client.log_follower import LogFollower
from dtj.client.logs import LogLine, LogNote, LogSelection, read_logs, select
from dtj.client.overview import Event, aggregated
from dtj.client.pods import JobPod, owned, pods_of, selector_of
from dtj.client.server_check import check_on_server
from dtj.client.watching import WaitCondition, snapshots, where_it_is
from dtj.core.observed import Pod
from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource
from dtj.kube.decoding import decode_object
from dtj.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from dtj.kube.gateway import CONFIG_MAPS, EVENTS, JOBS, PODS, TFJOBS, jobs_of
from dtj.kube.records import decode_pod

USER_AGENT: Final = f"dtj/{__version__}"
MANAGER: Final = "dtj"
"""Who owns the fields that a person sets through this client; the operator's are its own."""

_LOG: Final = logging.getLogger("dtj.client")


class AsyncClient:
    """What a person or a program asks of the jobs of one cluster. Make one with :meth:`connect`; close it.

    ``namespace`` of a method is that of the client where it is None. Every method raises
    :class:`~dtj.kube.errors.ApiError` or one of its kinds where the API server refuses or does not answer.
    """

    def __init__(self, gateway: KubeGateway, *, namespace: str, asked: str | None = None) -> None:
        self.gateway = gateway
        self.namespace = namespace
        self._asked = asked

    @classmethod
    async def connect(
        cls, *, namespace: str | None = None, kubeconfig: str | None = None, context: str | None = None
    ) -> Self:
        """A client for the cluster, and by default the namespace, that kubectl would use too; no call is made yet.

        Raises ConfigError.
        """
        source = ConnectionSource(kubeconfig=kubeconfig, context=context)
        gateway = await KubeGateway.connect(source, user_agent=USER_AGENT, manager=MANAGER)
        return cls(gateway, namespace=namespace or source.namespace(), asked=namespace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.gateway.close()

    # -- looking --------------------------------------------------------------------------------------------------

    async def list(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        tfjobs: bool = False,
    ) -> tuple[Job, ...]:
        """The jobs that carry the labels of ``selector``, by namespace and name; with ``tfjobs`` those of Kubeflow
        too, if the cluster has them and they may be listed."""
        found = await self.list_objects(
            namespace=namespace, all_namespaces=all_namespaces, selector=selector, tfjobs=tfjobs
        )
        return tuple(map(Job.from_object, found))

    async def list_objects(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str = "",
        tfjobs: bool = False,
    ) -> tuple[JsonObject, ...]:
        """The same jobs as the API server has them. Raises InvalidRequest for what cannot be a namespace."""
        where = None if all_namespaces else namespace or self.namespace
        if where is not None:
            job_names.check_namespace(where)
        found = list(map(decode_object, (await self.gateway.list(JOBS, namespace=where, selector=selector)).items))
        if tfjobs:
            with suppress(NotFound, Forbidden):  # no such kind, or none of this person's
                listing = await self.gateway.list(TFJOBS, namespace=where, selector=selector)
                found += map(decode_object, listing.items)
        return tuple(sorted(found, key=lambda body: Job.from_object(body).key))

    async def get(self, name: str, *, namespace: str | None = None) -> Job:
        """One job; ``tfjob/NAME`` is a TFJob of Kubeflow.

        Raises NotFound, and InvalidRequest where ``name`` cannot be the name of a job, as an empty one or ``.``.
        """
        return Job.from_object(await job_names.read(self.gateway, name, namespace=namespace or self.namespace))

    async def logs(
        self, name: str, selection: LogSelection | None = None, *, follow: bool = False, namespace: str | None = None
    ) -> AsyncGenerator[LogLine | LogNote, None]:
        """What the replicas of a job print, merged by time: what there is, with ``follow`` also what comes, across
        restarts, until the job has ended.

        Raises NotFound, NothingToRead where ``selection`` fits nothing of the job, Forbidden without a right to logs.
        """
        job = await self.get(name, namespace=namespace)
        selection = selection or LogSelection()
        if follow:
            changes = partial(self.follow, job_names.typed(job), namespace=job.namespace)
            lines = LogFollower(self.gateway, job, selection, changes).lines()
        else:
            lines = read_logs(self.gateway, await select(self.gateway, job, selection), selection)
        async with aclosing(lines):
            async for line in lines:
                yield line

    async def follow(self, name: str, *, namespace: str | None = None) -> AsyncGenerator[Job, None]:
        """The job as it is now, and after each change, until it is deleted or replaced. Raises NotFound.

        A connection that breaks is made again; states in between may be missed, the newest never. An API server that
        does not answer for five minutes ends it with Unavailable.
        """
        async with aclosing(self._as_it_changes(await self.get(name, namespace=namespace))) as found:
            async for job in found:
                yield job

    async def _as_it_changes(self, job: Job) -> AsyncGenerator[Job, None]:
        selector = f"metadata.name={job.name}"
        resource = jobs_of(job.form)
        found = snapshots(self.gateway, resource, decode=_job, namespace=job.namespace, field_selector=selector)
        async with aclosing(found):
            async for jobs in found:
                if job.uid not in jobs:
                    return
                yield jobs[job.uid]

    async def pods(self, job: Job) -> tuple[Pod, ...]:
        """The job's pods, by role, index and age; including those of earlier attempts that still exist."""
        return tuple(each.pod for each in await pods_of(self.gateway, job))

    async def follow_pods(self, job: Job) -> AsyncGenerator[tuple[Pod, ...], None]:
        """The job's pods now, and after each change, without end."""

        def decode(item: bytes) -> JobPod:
            return JobPod.of(decode_pod(item), job.form)

        found = snapshots(self.gateway, PODS, decode=decode, namespace=job.namespace, selector=selector_of(job))
        async with aclosing(found):
            async for pods in found:
                yield tuple(each.pod for each in owned(pods.values(), job))

    async def events(self, job: Job) -> tuple[Event, ...]:
        """The events of the job and of its pods, the newest last. The cluster forgets events after an hour or so."""
        about = {job.uid, *(pod.uid for pod in await self.pods(job))}
        of_job = await self.gateway.list(EVENTS, namespace=job.namespace, field_selector=f"regarding.uid={job.uid}")
        of_pods = await self.gateway.list(EVENTS, namespace=job.namespace, field_selector="regarding.kind=Pod")
        found = (decode_object(item) for item in (*of_job.items, *of_pods.items))
        return aggregated(Event.from_object(body) for body in found if dig(body, "regarding", "uid") in about)

    async def wait(
        self, name: str, for_: str | None = None, *, timeout: float | None = None, namespace: str | None = None
    ) -> Job:
        """The job, once the condition ``for_`` (``complete``, ``failed``, ``ready``, ...) is True, or where that is
        None, once it has ended, with success or without. ``timeout`` in seconds; None waits forever.

        Raises InvalidRequest for an unknown condition, NotFound, WaitTimeout, ConditionUnreachable if the job has
        ended without it, and JobGone if it was deleted meanwhile.
        """
        condition = WaitCondition.parse(for_)
        last: Job | None = None

        def late() -> WaitTimeout:
            known = f"it is {where_it_is(last)}" if last is not None else "the cluster has not answered"
            return WaitTimeout(f"{name}: not {condition} after {timeout:g} s; {known}", job=last)

        async with _within(timeout, late) as answered:
            last = await self.get(name, namespace=namespace)
            if condition.met(last):
                return last
            answered()
            async with aclosing(self.follow(name, namespace=namespace)) as jobs:
                with suppress(NotFound):  # deleted since we looked
                    async for last in jobs:
                        if condition.met(last):
                            return last
        raise JobGone(f"{name}: was deleted during the wait", job=last)

    # -- acting ---------------------------------------------------------------------------------------------------

    async def submit(
        self,
        manifest: Source,
        *,
        code: str | os.PathLike[str] | CodePack | None = None,
        namespace: str | None = None,
    ) -> Job:
        """Create the one job of a manifest: a path, YAML text, or a mapping.

        ``code`` is a directory whose files the pods find in their working directory, as with ``dtj submit --code``.

        It is checked first by the rules of ``dtj validate``, and by the API server in a dry run. Raises
        InvalidManifest, whose lines name the fields, CodeError if the directory cannot be packed, and AlreadyExists.
        """
        found = manifests_of(manifest)
        if len(found) != 1:
            raise InvalidManifest((f"the manifest holds {len(found)} jobs, not one: use submit_all",))
        if code is not None:
            packed = code if isinstance(code, CodePack) else pack(code)
            if packed.warning:
                _LOG.warning("code: %s", packed.warning)
            found = (with_code(found[0], packed),)
        (created,) = await self._create(found, namespace)
        return created

    async def submit_all(self, manifest: Source, *, namespace: str | None = None) -> tuple[Job, ...]:
        """Create the jobs of a manifest, in order, after all of them were checked; otherwise as :meth:`submit`.

        Where the API server refuses one, those before it are there.
        """
        return await self._create(manifests_of(manifest), namespace)

    def placed(
        self, manifests: Iterable[Manifest], *, namespace: str | None = None
    ) -> tuple[tuple[Manifest, str], ...]:
        """Each manifest with the namespace that it goes to: its own, else ``namespace``, else the client's.

        Raises InvalidManifest where one names another namespace than was asked for.
        """
        return placed(manifests, namespace=self.namespace, asked=namespace or self._asked)

    async def _create(self, manifests: tuple[Manifest, ...], namespace: str | None) -> tuple[Job, ...]:
        found = self.placed(manifests, namespace=namespace)
        await self.check(found)
        return tuple([await self.create(manifest, namespace=where) for manifest, where in found])

    async def check(self, manifests: Iterable[tuple[Manifest, str]]) -> None:
        """Ask the API server about jobs, each with its namespace, and about the pods that they would have: a dry run.

        What this person has no right to ask is left to the operator, and so is what a quota or a policy forbids now.
        Raises InvalidManifest, whose lines name fields of the manifests, and ApiError.
        """
        problems: list[str] = []
        for manifest, namespace in manifests:
            found = await check_on_server(self.gateway, manifest, namespace=namespace)
            problems += (one_line(f"{manifest.document.title}: {problem}") for problem in found.problems)
        if problems:
            raise InvalidManifest(tuple(problems))

    async def create(self, manifest: Manifest, *, namespace: str) -> Job:
        """Create a job that was checked, and the ConfigMap with its code, if it has one, which is deleted with the job.

        Fields that the cluster's CRD does not know are errors. If the ConfigMap is refused, no job stays.
        """
        code = manifest.config_map
        if code is not None:  # asked first: a job without its code could not begin
            with suppress(AlreadyExists):
                await self.gateway.create(CONFIG_MAPS, namespace=namespace, body=code, dry_run=True)
        created = Job.from_object(await self.gateway.create(JOBS, namespace=namespace, body=manifest.body, strict=True))
        if code is not None:
            try:
                await self._create_code(owned_by(code, created), namespace)
            except BaseException:  # Ctrl-C too
                with suppress(ApiError):
                    await self.gateway.delete(JOBS, namespace=namespace, name=created.name, uid=created.uid)
                raise
        return created

    async def _create_code(self, config_map: JsonObject, namespace: str) -> None:
        try:
            await self.gateway.create(CONFIG_MAPS, namespace=namespace, body=config_map)
        except AlreadyExists:
            # That of an earlier job of this name with the same code. The garbage collector may be about to delete it:
            # giving it another owner would come too late. By its UID: it may be that of a later job by then.
            with suppress(NotFound):
                name = name_of(config_map)
                found = await self.gateway.get(CONFIG_MAPS, namespace=namespace, name=name)
                uid = text(dig(found, "metadata", "uid"))
                await self.gateway.delete(CONFIG_MAPS, namespace=namespace, name=name, uid=uid)
            await self.gateway.create(CONFIG_MAPS, namespace=namespace, body=config_map)

    async def suspend(self, name: str, *, namespace: str | None = None) -> Job:
        """Have the job's pods save a checkpoint and end; the job stays, and :meth:`resume` goes on with it.

        Raises NotFound, and InvalidRequest where the job has ended.
        """
        return await self._set_suspend(name, namespace, True)

    async def resume(self, name: str, *, namespace: str | None = None) -> Job:
        """Let a suspended job go on. Raises NotFound, and InvalidRequest where the job has ended."""
        return await self._set_suspend(name, namespace, False)

    async def stop(self, name: str, *, timeout: float | None = None, namespace: str | None = None) -> Job:
        """Suspend the job, and return when its pods are gone. Nothing is lost: :meth:`resume` goes on with it.

        Raises WaitTimeout after ``timeout`` seconds, and what :meth:`suspend` and :meth:`wait` raise.
        """
        job: Job | None = None

        def late() -> WaitTimeout:
            known = "is suspended, but its pods are not gone" if job is not None else "the cluster has not answered"
            return WaitTimeout(f"{name}: {known} after {timeout:g} s", job=job)

        async with _within(timeout, late) as answered:
            job = await self.suspend(name, namespace=namespace)
            answered()
            job = await self.wait(name, Condition.SUSPENDED, namespace=namespace)
            async with aclosing(self.follow_pods(job)) as changes:
                async for pods in changes:
                    if all(pod.all_containers_ended for pod in pods):
                        break
        return job

    async def _set_suspend(self, name: str, namespace: str | None, suspend: bool) -> Job:
        where = namespace or self.namespace
        job = await self.get(name, namespace=where)
        if job.status.terminal:
            word = "suspended" if suspend else "resumed"
            raise InvalidRequest(f"{name}: has ended ({job.status.state}), and cannot be {word}")
        if (dig(job.raw_spec, "runPolicy", "suspend") is True) == suspend:
            return job
        patch: JsonObject = {"metadata": {"uid": job.uid}, "spec": {"runPolicy": {"suspend": suspend}}}
        resource = jobs_of(job.form)
        return Job.from_object(await self.gateway.patch(resource, namespace=where, name=job.name, patch=patch))

    async def scale(self, name: str, replicas: int, *, namespace: str | None = None) -> None:
        """Set the number of workers of an elastic job. With dtj-launch the pods of the others stay.

        Raises NotFound, and InvalidRequest where the job has ended, is not elastic, or ``replicas`` is out of its
        range.
        """
        where = namespace or self.namespace
        job = await self.get(name, namespace=where)
        if job.status.terminal:
            raise InvalidRequest(f"{name}: has ended ({job.status.state}), and cannot be scaled")
        patch: JsonObject = {"metadata": {"uid": job.uid}, "spec": {"replicas": replicas}}
        try:
            await self.gateway.patch(JOBS, namespace=where, name=job.name, patch=patch, subresource="scale")
        except Invalid as error:  # the rules of the CRD know which jobs are elastic, and how far
            raise InvalidRequest(f"{name}: {error.message}") from error

    async def delete(
        self, name: str, *, wait: bool = False, timeout: float | None = None, namespace: str | None = None
    ) -> None:
        """Delete the job, and with it its pods. ``wait`` returns when they are gone.

        Raises NotFound, and WaitTimeout after ``timeout`` seconds of waiting.
        """
        where = namespace or self.namespace
        job: Job | None = None

        def late() -> WaitTimeout:
            known = "is being deleted, but not gone" if job is not None else "the cluster has not answered"
            return WaitTimeout(f"{name}: {known} after {timeout:g} s", job=job)

        async with _within(timeout, late) as answered:
            found = await self.get(name, namespace=where)
            resource = jobs_of(found.form)
            await self.gateway.delete(resource, namespace=where, name=found.name, uid=found.uid, foreground=wait)
            job = found
            if wait:
                answered()
                async with aclosing(self._as_it_changes(job)) as changes:
                    async for _ in changes:
                        pass


@asynccontextmanager
async def _within(timeout: float | None, late: Callable[[], WaitTimeout]) -> AsyncIterator[Callable[[], None]]:
    """A time-out in seconds, which raises what ``late`` gives.

    What it yields is called when the cluster has answered for the first time: 0 seconds are one look, without waiting.
    """

    def answered() -> None:
        if timeout == 0:
            raise late()

    try:
        async with asyncio.timeout(timeout or None) as limit:
            yield answered
    except TimeoutError:
        if not limit.expired():
            raise
        raise late() from None


def _job(item: bytes) -> Job:
    return Job.from_object(decode_object(item))
