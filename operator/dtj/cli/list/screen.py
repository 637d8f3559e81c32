"""Jobs while they change: a table redrawn in place on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Protocol

from rich.console import Group

from dtj.api.job import Job
from dtj.cli.common.console import Console, Text, can_redraw, live
from dtj.cli.list.render import Row, job_rows, padded, widths

TICK: Final = 1.0
"""Seconds between two drawings of jobs that do not change: they grow older."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)

Changes = AsyncGenerator[Mapping[str, Job], None]


class JobsScreen(Protocol):
    """Where a selection of jobs is shown."""

    async def run(self, changes: Changes) -> None:
        """Show them until ``changes`` end or the task is cancelled."""


def jobs_screen(console: Console, *, namespaced: bool, wide: bool, empty: str) -> JobsScreen:
    """The screen that suits the console; ``empty`` is shown if there are no jobs."""
    if can_redraw(console):
        return _Table(console, namespaced=namespaced, wide=wide, empty=empty)
    return _Lines(console, namespaced=namespaced, wide=wide)


class _Table:
    def __init__(self, console: Console, *, namespaced: bool, wide: bool, empty: str) -> None:
        self._console = console
        self._namespaced = namespaced
        self._wide = wide
        self._empty = empty
        self._jobs: Mapping[str, Job] = {}

    async def run(self, changes: Changes) -> None:
        with live(self._console, cropped=True) as table:
            pending = asyncio.ensure_future(anext(changes, None))
            try:
                while True:
                    done, _ = await asyncio.wait({pending}, timeout=TICK)
                    if done:
                        now = pending.result()
                        if now is None:
                            return
                        self._jobs = now
                        pending = asyncio.ensure_future(anext(changes, None))
                    table.update(self._drawn(), refresh=True)
            finally:
                pending.cancel()
                with suppress(asyncio.CancelledError):
                    await pending

    def _drawn(self) -> Group:
        rows = _rows(self._jobs.values(), namespaced=self._namespaced, wide=self._wide)
        lines = padded(rows) if len(rows) > 1 else (self._empty,)
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


class _Lines:
    def __init__(self, console: Console, *, namespaced: bool, wide: bool) -> None:
        self._console = console
        self._namespaced = namespaced
        self._wide = wide
        self._widths: tuple[int, ...] = ()

    async def run(self, changes: Changes) -> None:
        before: Mapping[str, Job] | None = None
        async for now in changes:
            changed = [job for uid, job in now.items() if before is None or _shown(before.get(uid)) != _shown(job)]
            gone = [job for uid, job in (before or {}).items() if uid not in now]
            self._print(changed, first=before is None)
            for job in sorted(gone, key=lambda job: job.key):
                self._say(f"{job.name} deleted")
            before = now

    def _print(self, jobs: Iterable[Job], *, first: bool) -> None:
        rows = _rows(jobs, namespaced=self._namespaced, wide=self._wide)
        lines = padded(rows, least=self._widths)
        self._widths = widths(rows, least=self._widths)
        for line in lines[0 if first else 1 :]:
            self._say(line)

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)


def _rows(jobs: Iterable[Job], *, namespaced: bool, wide: bool) -> tuple[Row, ...]:
    return job_rows(sorted(jobs, key=lambda job: job.key), now=datetime.now(UTC), namespaced=namespaced, wide=wide)


def _shown(job: Job | None) -> Row | None:
    """What of a job a row shows, its age aside."""
    return None if job is None else job_rows([job], now=_NEVER, namespaced=True, wide=True)[1]
