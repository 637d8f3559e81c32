"""The logs of pods that nobody runs: answered on the way to a real API server, as a kubelet would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from aiohttp import web

from support.api_proxy import Call, Forward, refusal

_POLL_SECONDS = 0.02
_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class KubeletLogs:
    """An answer of :class:`~support.api_proxy.ApiProxy`: it answers for the logs, and lets all else through."""

    lines: dict[str, list[tuple[datetime, str]]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """Pods whose containers have ended: a reader of their logs sees the end."""

    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Pod and query of each reading."""

    cut_before: dict[str, str] = field(default_factory=dict)
    """Pods of which a reading that is followed breaks where it would tell this line, once."""

    def say(self, pod: str, *texts: str, second: float = 0.0) -> None:
        """A pod prints lines, this many seconds after the start of all time."""
        at = _START + timedelta(seconds=second)
        self.lines.setdefault(pod, []).extend((at, text) for text in texts)

    async def __call__(self, call: Call, forward: Forward) -> web.StreamResponse:
        if call.resource != "pods/log":
            return await forward()
        self.asked.append((call.name, call.query))
        if call.name not in self.lines:
            return refusal(404, reason="NotFound", message=f'pods "{call.name}" not found')
        return web.Response(body=self._read(call.name, call.query), content_type="text/plain")

    async def _read(self, pod: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        follow = query.get("follow") == "true"
        since = datetime.fromisoformat(query["sinceTime"]) if "sinceTime" in query else _START
        place = len(self.lines[pod])
        there = [line for line in self.lines[pod] if line[0] >= since]
        waiting = there[-int(query["tailLines"]) :] if "tailLines" in query else there
        while True:
            for at, text in waiting:
                if follow and self.cut_before.get(pod) == text:
                    del self.cut_before[pod]
                    raise ConnectionResetError("the kubelet's connection breaks")
                yield f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {text}\n".encode()
            if not follow or (pod in self.ended and place == len(self.lines[pod])):
                return
            await asyncio.sleep(_POLL_SECONDS)
            waiting = self.lines[pod][place:]
            place += len(waiting)
