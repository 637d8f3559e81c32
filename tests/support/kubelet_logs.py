"""The logs of pods that nobody runs: answered on the way to a real API server, as a kubelet would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from aiohttp import web

from support.api_proxy import Call, Forward, refusal

_START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class KubeletLogs:
    """An answer of :func:`~support.api_proxy.proxied`: it answers for the logs, and lets all else through."""

    lines: dict[str, list[tuple[datetime, str]]] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Pod and query of each reading."""

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
        return web.Response(text=self._read(call.name, call.query), content_type="text/plain")

    def _read(self, pod: str, query: Mapping[str, str]) -> str:
        """The lines that were said until now, with their times; what is followed ends with them."""
        since = datetime.fromisoformat(query["sinceTime"]) if "sinceTime" in query else _START
        there = [line for line in self.lines[pod] if line[0] >= since]
        shown = there[-int(query["tailLines"]) :] if "tailLines" in query else there
        return "".join(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {text}\n" for at, text in shown)
