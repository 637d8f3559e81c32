"""The client for asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final, Self

import msgspec

from dtj import __version__
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.client.log_follower import follow_logs
from dtj.client.logs import LogLine, LogNote, LogSelection, read_logs, select
from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource
from dtj.kube.errors import Gone
from dtj.kube.gateway import JOBS

USER_AGENT: Final = f"dtj/{__version__}"

_decode: Callable[[bytes], JsonObject] = msgspec.json.Decoder(dict).decode


class AsyncClient:
    """What a person or a program asks of the jobs of one cluster. Make one with :meth:`connect`; close it.

    ``namespace`` of a method is that of the client where it is None. Every method raises
    :class:`~dtj.kube.errors.ApiError` or one of its kinds where the API server refuses or does not answer.
    """

    def __init__(self, gateway: KubeGateway, *, namespace: str) -> None:
        self.gateway = gateway
        self.namespace = namespace

    @classmethod
    async def connect(
        cls, *, namespace: str | None = None, kubeconfig: str | None = None, context: str | None = None
    ) -> Self:
        """A client for the cluster, and by default the namespace, that kubectl would use too; no call is made yet.

        Raises ConfigError.
        """
        source = ConnectionSource(kubeconfig=kubeconfig, context=context)
        gateway = await KubeGateway.connect(source, user_agent=USER_AGENT)
        return cls(gateway, namespace=namespace or source.namespace())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.gateway.close()

    async def list(
        self, *, namespace: str | None = None, all_namespaces: bool = False, selector: str = ""
    ) -> tuple[Job, ...]:
        """The jobs that carry the labels of ``selector``, by namespace and name."""
        where = None if all_namespaces else namespace or self.namespace
        listing = await self.gateway.list(JOBS, namespace=where, selector=selector)
        jobs = (Job.from_object(_decode(item)) for item in listing.items)
        return tuple(sorted(jobs, key=lambda job: job.key))

    async def get(self, name: str, *, namespace: str | None = None) -> Job:
        """One job. Raises NotFound."""
        return Job.from_object(await self.gateway.get(JOBS, namespace=namespace or self.namespace, name=name))

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
            lines = follow_logs(
                self.gateway, job, selection, changes=lambda: self.follow(job.name, namespace=job.namespace)
            )
        else:
            lines = read_logs(self.gateway, await select(self.gateway, job, selection), selection)
        async with aclosing(lines):
            async for line in lines:
                yield line

    async def follow(self, name: str, *, namespace: str | None = None) -> AsyncIterator[Job]:
        """The job as it is now, and after each change, until it is deleted or replaced. Raises NotFound.

        A connection that breaks is made again; states in between may be missed, the newest never.
        """
        where = namespace or self.namespace
        uid = ""
        while True:
            listing = await self.gateway.list(JOBS, namespace=where, field_selector=f"metadata.name={name}")
            jobs = [Job.from_object(_decode(item)) for item in listing.items]
            if not jobs and not uid:
                await self.gateway.get(JOBS, namespace=where, name=name)
            if not jobs or (uid and jobs[0].uid != uid):
                return
            uid = jobs[0].uid
            yield jobs[0]
            version = listing.resource_version
            try:
                async for event in self.gateway.watch(
                    JOBS, namespace=where, field_selector=f"metadata.name={name}", resource_version=version
                ):
                    if event.type == "BOOKMARK":
                        continue
                    job = Job.from_object(_decode(event.object))
                    if job.uid != uid or event.type == "DELETED":
                        return
                    yield job
            except Gone:
                continue
