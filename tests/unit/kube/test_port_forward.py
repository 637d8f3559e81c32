"""A port of a pod on this machine: an API server that is played speaks the kubelet's protocol."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web

from dtj.kube.client import PORT_FORWARD_PROTOCOL, KubeGateway
from dtj.kube.config import ConnectionSource
from dtj.kube.port_forward import PortTaken, Target, forwarded
from patience import PATIENCE_SECONDS
from support.kubeconfigs import kubeconfig
from support.web_server import served

TARGET = Target("default", "digits-tensorboard", 6006)


class Pod:
    """An API server with one pod, which answers what it hears in capitals."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refusal: int | None = None
        self.trouble = b""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.path_qs} {request.headers.get('Authorization', '')}")
        if self.refusal is not None:
            return web.Response(status=self.refusal)
        socket = web.WebSocketResponse(protocols=(PORT_FORWARD_PROTOCOL,))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + struct.pack("<H", 6006))
        if self.trouble:
            await socket.send_bytes(b"\x01" + self.trouble)
            await socket.close()
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                assert message.data[:1] == b"\x00"
                await socket.send_bytes(b"\x00" + message.data[1:].upper())
        return socket


@asynccontextmanager
async def gateway_to(pod: Pod, folder: Path) -> AsyncIterator[KubeGateway]:
    async with served(pod.handle) as url:
        gateway = await KubeGateway.connect(ConnectionSource(kubeconfig=str(kubeconfig(folder, url, token="secret"))))
        try:
            yield gateway
        finally:
            await gateway.close()


async def talk(port: int, words: bytes) -> bytes:
    """What comes back; empty where the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(words)
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read(100)
    finally:
        writer.close()


async def test_what_goes_in_here_comes_out_there_and_the_other_way_round(tmp_path: Path) -> None:
    pod, errors = Pod(), list[str]()
    async with gateway_to(pod, tmp_path) as gateway, forwarded(gateway, TARGET, port=0, complain=errors.append) as port:
        answers = await asyncio.gather(talk(port, b"hello"), talk(port, b"you"))
        assert list(answers) == [b"HELLO", b"YOU"]
    path = "/api/v1/namespaces/default/pods/digits-tensorboard/portforward?ports=6006"
    assert pod.asked == [f"{path} Bearer secret"] * 2
    assert errors == []


CANNOT = "port 6006 of pod digits-tensorboard cannot be forwarded: HTTP status"


@pytest.mark.parametrize(
    ("refusal", "trouble", "words"),
    [
        (None, b"connection refused", "connection refused"),
        *((status, b"", f"{CANNOT} {status}") for status in (403, 404, 500)),
    ],
)
async def test_a_pod_that_does_not_listen_and_a_server_that_refuses_are_reported_and_the_next_connection_is_tried_again(
    tmp_path: Path, refusal: int | None, trouble: bytes, words: str
) -> None:
    pod, errors = Pod(), list[str]()
    pod.refusal, pod.trouble = refusal, trouble
    async with gateway_to(pod, tmp_path) as gateway, forwarded(gateway, TARGET, port=0, complain=errors.append) as port:
        assert await talk(port, b"hello") == b""
        assert errors == [words]
        pod.refusal, pod.trouble = None, b""
        assert await talk(port, b"hello") == b"HELLO"


async def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    async with gateway_to(Pod(), tmp_path) as gateway, forwarded(gateway, TARGET, port=0, complain=print) as port:
        with pytest.raises(PortTaken, match=f"cannot listen on port {port}"):
            async with forwarded(gateway, TARGET, port=port, complain=print):
                pass
