"""A kubelet that runs the one container of a pod here, and forwards its port; a real API server answers all else."""

from __future__ import annotations

import asyncio
import resource
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import WSMsgType, web

from dtj.api.json import JsonObject, dig, objects, text
from dtj.kube.client import PORT_FORWARD_PROTOCOL
from loopback import free_ports
from support.api_proxy import Call, Forward
from support.job_world import JobWorld

COPIER = "dtj-copy-code"


@dataclass
class KubeletPorts:
    """A trouble for :class:`~support.api_proxy.ApiProxy`: it answers for the port of the pods that it runs.

    ``volume`` is what the claim of the pods holds; ``longest_file`` what a file of it may have, in bytes. Connections
    break before they bring the pod a byte while ``cuts`` is set.
    """

    volume: Path
    longest_file: int | None = None
    cuts: bool = False
    _ports: dict[str, int] = field(default_factory=dict)
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, world: JobWorld) -> JsonObject:
        """Run the pod that copies code, when it is there; the pod."""
        pod = world.eventually(lambda: copier(world))
        name = text(dig(pod, "metadata", "name"))
        (container,) = objects(dig(pod, "spec", "containers"))
        (mount,) = objects(container["volumeMounts"])
        _, option, program, *arguments = map(str, container["command"])  # type: ignore[arg-type]
        (port,) = free_ports(1)
        self._ports[name] = port
        words = [str(self.volume) if word == mount["mountPath"] else word for word in arguments[:-1]]

        def bound() -> None:
            if self.longest_file is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.longest_file, self.longest_file))

        command = [sys.executable, option, program, *words, str(port)]
        self._started.append(subprocess.Popen(command, preexec_fn=bound))
        world.run_pod(name)
        return pod

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    async def __call__(self, call: Call, forward: Forward) -> web.StreamResponse:
        if call.resource != "pods/portforward":
            return await forward()
        assert call.request is not None
        answer = web.WebSocketResponse(protocols=(PORT_FORWARD_PROTOCOL,))
        await answer.prepare(call.request)
        for channel in (0, 1):
            await answer.send_bytes(bytes([channel]) + struct.pack("<H", 7070))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._ports[call.name])
        except OSError:
            await answer.send_bytes(b"\x01connection refused")
            await answer.close()
            return answer
        back = asyncio.create_task(_bring_back(reader, answer))
        async for message in answer:
            if self.cuts:
                break
            if message.type is WSMsgType.BINARY:
                writer.write(message.data[1:])
        writer.close()
        back.cancel()
        await answer.close()
        return answer


async def _bring_back(reader: asyncio.StreamReader, answer: web.WebSocketResponse) -> None:
    while chunk := await reader.read(1000):
        await answer.send_bytes(b"\x00" + chunk)
    await answer.close()


def copiers(world: JobWorld) -> list[JsonObject]:
    """The pods that copy code."""
    found = objects(world.api.request("GET", f"/api/v1/namespaces/{world.namespace}/pods")["items"])
    return [pod for pod in found if text(dig(pod, "metadata", "name")).startswith(COPIER)]


def copier(world: JobWorld) -> JsonObject:
    """The one that copies code and is not run yet. Raises AssertionError if there is none."""
    found = [pod for pod in copiers(world) if dig(pod, "status", "phase") == "Pending"]
    assert len(found) == 1, f"{len(found)} pods copy code"
    return found[0]
