"""The log of one container, read in several requests: each continues where the one before ended.

Kubelets find a position in a log by whole seconds. Therefore the lines of the newest seconds are remembered, and are
not returned a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.kube.client import KubeGateway
from dtj.kube.errors import NotFound
from dtj.kube.pod_logs import LogQuery

_OVERLAP_SECONDS: Final = 1
"""How long before the newest line a reading begins again: output and errors are not written in perfect order."""


_LOST: Final = ("unable to retrieve container logs for ", "failed to try resolving symlinks in path ")
"""What a kubelet says, without a timestamp, in place of a log that it has no more (kubernetes, pkg/kubelet)."""


@dataclass(frozen=True, slots=True)
class StampedLine:
    """A line, and when it was written; None where the node gives no timestamps."""

    stamp: str
    at: datetime | None
    text: str


class ContainerLog:
    """``query`` says what is wanted the first time."""

    def __init__(self, gateway: KubeGateway, query: LogQuery, *, namespace: str, pod: str) -> None:
        self._gateway = gateway
        self._query = query
        self._namespace = namespace
        self._pod = pod
        self._newest: int | None = None
        self._passed_on: dict[int, Counter[bytes]] = {}

    async def read(self, *, follow: bool) -> AsyncGenerator[StampedLine, None]:
        """The lines that were not read yet; with ``follow`` until the container ends.

        Raises ApiError, NotFound where pod or log are gone.
        """
        repeated = sum(self._passed_on.values(), Counter[bytes]())
        async with aclosing(self._gateway.log(self._next(follow), namespace=self._namespace, pod=self._pod)) as lines:
            async for raw in lines:
                if repeated[raw]:
                    repeated[raw] -= 1
                    continue
                line = parse_line(raw)
                if line.at is None and line.text.startswith(_LOST):
                    raise NotFound(line.text)
                self._remember(line, raw)
                yield line

    def _next(self, follow: bool) -> LogQuery:
        if self._newest is None:
            return replace(self._query, follow=follow)
        since = datetime.fromtimestamp(self._newest - _OVERLAP_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return replace(self._query, follow=follow, tail=None, since_time=since)

    def _remember(self, line: StampedLine, raw: bytes) -> None:
        if line.at is None:
            return
        second = int(line.at.timestamp())
        if self._newest is None or second > self._newest:
            self._newest = second
            for old in [old for old in self._passed_on if old < second - _OVERLAP_SECONDS]:
                del self._passed_on[old]
        self._passed_on.setdefault(second, Counter())[raw] += 1


def parse_line(raw: bytes) -> StampedLine:
    """A line as the kubelet gives it: a timestamp, a space, and what the container has written."""
    whole = raw.decode(errors="replace")
    stamp, _, text = whole.partition(" ")
    at = parse_time(stamp) if stamp[:1].isdecimal() else None
    return StampedLine(stamp, at, text) if at is not None else StampedLine("", None, whole)
