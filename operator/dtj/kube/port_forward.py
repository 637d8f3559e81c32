"""A port of a pod on this machine, by the API server: what ``kubectl port-forward`` does.

Over the client's own asyncio session. The official client's port-forward is blocking, with a thread a connection and a
configuration of its own; kubectl would be another program that need not be here.

The protocol: a websocket for each connection. Binary messages begin with a channel, 0 for data and 1 for what went
wrong; the first message of either channel repeats the port, and is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import aiohttp

from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError

HOST: Final = "127.0.0.1"

_CHUNK: Final = 2**15
_DATA: Final = b"\x00"
_ERROR: Final = 1


class PortTaken(Exception):
    """The port is not available; the message names it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A port of a pod."""

    namespace: str
    pod: str
    port: int


@asynccontextmanager
async def forwarded(
    gateway: KubeGateway, target: Target, *, port: int, complain: Callable[[str], object]
) -> AsyncIterator[int]:
    """Forward ``port`` of this machine's loopback address (0: any that is free) within the block; the port.

    Raises PortTaken. A failed connection is reported to ``complain``; the next one is tried again.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _connect(gateway, target, reader, writer, complain=complain)
        except ApiError as error:
            complain(error.message)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    try:
        server = await asyncio.start_server(handle, HOST, port)
    except OSError as error:
        raise PortTaken(f"cannot listen on port {port}: {error.strerror}") from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _connect(
    gateway: KubeGateway,
    target: Target,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    complain: Callable[[str], object],
) -> None:
    """One connection, until either end closes it. Raises ApiError."""
    async with gateway.dial(namespace=target.namespace, pod=target.pod, port=target.port) as socket:
        ways = {
            asyncio.create_task(_to_pod(reader, socket)),
            asyncio.create_task(_from_pod(socket, writer, complain=complain)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _to_pod(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            await socket.send_bytes(_DATA + chunk)


async def _from_pod(
    socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter, *, complain: Callable[[str], object]
) -> None:
    begun: set[int] = set()
    with suppress(OSError):
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, content = message.data[0], message.data[1:]
            if channel not in begun:
                begun.add(channel)
            elif channel == _ERROR:
                complain(content.decode(errors="replace").strip())
            else:
                writer.write(content)
                await writer.drain()
