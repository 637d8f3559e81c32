"""How far each replica is, asked of its status port. Silence is no error: a user's own program has no such port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from dtj.api.status import Progress
from dtj.core.replicas import Replica
from dtj.engine import progress
from dtj.local.platform import HOST

INTERVAL: Final = 0.5
"""Seconds between two questions to a replica."""

_TIMEOUT: Final = 1.0


@dataclass(slots=True)
class ProgressBoard:
    """The newest word of each replica; :meth:`run` keeps it new.

    ``ports`` returns the replicas to ask now, each with its port.
    """

    ports: Callable[[], Mapping[Replica, int]]
    latest: dict[Replica, Progress] = field(default_factory=dict)

    async def run(self) -> NoReturn:
        """Ask until cancelled."""
        while True:
            asked = dict(self.ports())
            answers = await asyncio.gather(*(fetch(port) for port in asked.values()))
            for replica, answer in zip(asked, answers, strict=True):
                if answer is not None:
                    self.latest[replica] = answer
            await asyncio.sleep(INTERVAL)


async def fetch(port: int) -> Progress | None:
    """One answer, or None where none came that can be read."""
    body = await progress.fetch(HOST, port, timeout=_TIMEOUT)
    return progress.read_progress(body) if body is not None else None
