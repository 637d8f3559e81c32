"""Copies code onto a claim of a cluster, by a pod that lives for the copy alone.

The archive goes through the API server to the pod's port (``pods/portforward``), so neither the claim nor the pod has
to be reachable from here. The pod stores the whole archive or nothing. It is deleted whatever happens.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from dtj.api.json import JsonObject, dig, text
from dtj.client.code_claim import check
from dtj.client.code_copy_pod import DEADLINE_SECONDS, PORT, copy_pod
from dtj.client.code_manifest import JobWithCodeOnClaim
from dtj.client.code_pack import shown
from dtj.client.errors import CodeError
from dtj.client.overview import Event, aggregated
from dtj.convert.pod_records import pod_from
from dtj.core.observed import Blocker, Phase, Pod
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Forbidden, NotFound
from dtj.kube.gateway import CLAIMS, EVENTS, PODS
from dtj.kube.port_forward import HOST, Target, forwarded
from dtj.kube.records import pod_from_object

_CHUNK: Final = 2**16

_REMEDIES: Final = {
    errno.ENOSPC: "free space on it, or name a larger claim",
    errno.EDQUOT: "free space on it, or name a larger claim",
    errno.EROFS: "name a claim whose volume can be written",
    errno.EACCES: "set securityContext.fsGroup in the pod template, or let its user write there",
    errno.EPERM: "set securityContext.fsGroup in the pod template, or let its user write there",
}


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """Seconds: how long a pod may take to start, how long something may keep it from starting (a node may come, a pull
    may be repeated), how long the port may take to answer, and how long to wait between looks."""

    start: float = 600.0
    blocked: float = 30.0
    answer: float = 60.0
    look: float = 0.5


class CodeCopy:
    """One copy of a job's code to its claim. ``report`` gets lines for a person."""

    def __init__(
        self,
        gateway: KubeGateway,
        job: JobWithCodeOnClaim,
        *,
        namespace: str,
        report: Callable[[str], object],
        times: CopyTimes | None = None,
    ) -> None:
        self._gateway, self._job, self._namespace, self._report = gateway, job, namespace, report
        self._times = times or CopyTimes()

    async def run(self) -> bool:
        """Copy the code; False if the claim has it already.

        Raises CodeError if that cannot be done, and ApiError. The pod is deleted then, too.
        """
        await self._check_claim()
        async with self._pod() as name:
            await self._await_start(name)
            async with self._connection(name) as (reader, writer, stored):
                if not stored:
                    await self._send(reader, writer)
                return not stored

    @property
    def _claim(self) -> str:
        return f"PersistentVolumeClaim {self._job.claim.name}"

    async def _check_claim(self) -> None:
        name = self._job.claim.name
        spec = self._job.manifest.spec
        try:
            body = await self._gateway.get(CLAIMS, namespace=self._namespace, name=name)
        except NotFound:
            raise CodeError(
                f"PersistentVolumeClaim {name} does not exist in namespace {self._namespace}: create it, or name "
                f"another one (kubectl get persistentvolumeclaims -n {self._namespace})"
            ) from None
        warning = check(body, pods=sum(spec.replicas(role) for role in spec.roles()))
        if warning:
            self._report(warning)

    @asynccontextmanager
    async def _pod(self) -> AsyncIterator[str]:
        """The name of a pod that is created, and deleted at the end. Raises ApiError."""
        body = copy_pod(self._job)
        name = text(dig(body, "metadata", "name"))
        try:
            try:
                await self._gateway.create(PODS, namespace=self._namespace, body=body)
            except Forbidden as error:
                if not error.wants_restricted:
                    raise
                restricted = copy_pod(self._job, restricted=True)
                restricted["metadata"] = body["metadata"]
                await self._gateway.create(PODS, namespace=self._namespace, body=restricted)
            yield name
        finally:
            await self._delete(name)

    async def _delete(self, name: str) -> None:
        """Delete the pod if there is one: its UID is unknown if the answer to the creation was not read."""
        try:
            uid = text(dig(await self._get(name), "metadata", "uid"))
            await self._gateway.delete(PODS, namespace=self._namespace, name=name, uid=uid)
        except NotFound:
            pass
        except ApiError as error:
            remedy = f"delete it with kubectl delete pod -n {self._namespace} {name}"
            self._report(f"pod {name} stays until it is deleted ({error.message}): {remedy}")

    async def _get(self, name: str) -> JsonObject:
        return await self._gateway.get(PODS, namespace=self._namespace, name=name)

    async def _look(self, name: str) -> Pod:
        """The pod. Raises CodeError if it has ended or is being deleted."""
        try:
            pod = pod_from(pod_from_object(await self._get(name)))
        except NotFound:
            raise CodeError(f"pod {name}, which copies the code, was deleted: submit again") from None
        if pod.phase in (Phase.SUCCEEDED, Phase.FAILED) or pod.terminating:
            why = (pod.termination.message if pod.termination else "") or pod.message or pod.reason or "it was deleted"
            raise CodeError(f"pod {name}, which copies the code, has ended ({_line(why)}): submit again")
        return pod

    async def _await_start(self, name: str) -> None:
        """Return when the pod runs. Raises CodeError, with what keeps it from starting."""
        now = asyncio.get_running_loop().time
        begun, blocked_since = now(), 0.0
        while (pod := await self._look(name)).phase is not Phase.RUNNING:
            blocked_since = (blocked_since or now()) if pod.blocker is not None else 0.0
            if blocked_since and now() - blocked_since >= self._times.blocked:
                assert pod.blocker is not None
                self._refuse_to_wait(name, pod.blocker)
            if now() - begun >= self._times.start:
                why = await self._last_warning(pod) or "the cluster reports no reason"
                raise CodeError(f"pod {name}, which copies the code, did not start in {self._times.start:g} s: {why}")
            await asyncio.sleep(self._times.look)

    def _refuse_to_wait(self, name: str, blocker: Blocker) -> NoReturn:
        raise CodeError(
            f"pod {name}, which copies the code to {self._claim}, cannot start ({blocker.reason}): {blocker.message}; "
            "correct the image, the scheduling fields of the pod template, or the claim"
        )

    async def _last_warning(self, pod: Pod) -> str:
        """What the newest warning about the pod says, such as of a volume that cannot be mounted."""
        with suppress(ApiError):
            found = await self._gateway.list(
                EVENTS, namespace=self._namespace, field_selector=f"regarding.uid={pod.uid},type=Warning"
            )
            events = aggregated(Event.from_object(msgspec.json.decode(item, type=dict)) for item in found.items)
            return _line(events[-1].note) if events else ""
        return ""

    @asynccontextmanager
    async def _connection(self, name: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, bool]]:
        """A connection to the pod, and whether the claim has the code already. Raises CodeError and ApiError."""
        async with self._gateway.dial(namespace=self._namespace, pod=name, port=PORT):
            pass  # the API server's refusal, such as of a right that is missing, is an ApiError of its own
        problems: list[str] = []
        target = Target(self._namespace, name, PORT)
        async with forwarded(self._gateway, target, port=0, complain=problems.append) as port:
            reader, writer, greeting = await self._greeted(name, port, problems)
            try:
                yield reader, writer, _decoded(greeting).get("stored") is True
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _greeted(
        self, name: str, port: int, problems: list[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """The first connection whose other end answers: the program in the pod may not listen yet."""
        try:
            async with asyncio.timeout(self._times.answer):
                while True:
                    reader, writer = await asyncio.open_connection(HOST, port)
                    with suppress(OSError):
                        if greeting := await reader.readline():
                            return reader, writer, greeting
                    writer.close()
                    await self._look(name)
                    await asyncio.sleep(self._times.look)
        except TimeoutError:
            why = _line(problems[-1]) if problems else "it does not answer"
            raise CodeError(f"port {PORT} of pod {name}, which copies the code, cannot be reached: {why}") from None

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the archive. Raises CodeError if it is not stored."""
        archive, sent, answer = self._job.pack.archive, 0, b""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                for sent in range(0, len(archive), _CHUNK):
                    writer.write(archive[sent : sent + _CHUNK])
                    await writer.drain()
                sent = len(archive)
                answer = await reader.readline()
        except (OSError, TimeoutError):  # the answer is missing, which is reported below
            pass
        if not answer:
            raise CodeError(
                f"the connection was cut after {shown(sent)} of {shown(len(archive))}, and {self._claim} has nothing "
                "of them: submit again"
            )
        reply = _decoded(answer)
        if problem := text(reply.get("problem")):
            number = reply.get("errno")
            remedy = _REMEDIES.get(number, "submit again") if isinstance(number, int) else "submit again"
            raise CodeError(f"{self._claim} cannot take the code: {problem}: {remedy}")


def _decoded(line: bytes) -> JsonObject:
    """Raises CodeError if it is no answer of the program in the pod."""
    try:
        reply = json.loads(line)
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        raise CodeError("the pod that copies the code gives no sound answer: submit again")
    return reply


def _line(words: str) -> str:
    return " ".join(words.split())
