"""Shows a job once, or at each change until it has ended or is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Final

import yaml

from dtj.cli.common.connection import next_command, next_kubectl
from dtj.cli.common.console import Console, Screen
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.objects import as_json
from dtj.cli.common.terminal import say, write
from dtj.cli.status.render import change_line, status_view
from dtj.client import AsyncClient
from dtj.client.overview import Overview, gather
from dtj.kube.errors import ApiError, NotFound, Unavailable
from dtj.kube.waiting import Backoff

_REFRESH_SECONDS: Final = 5.0
"""Seconds after which the job is read again if no change was reported: pods change before the job does."""

_CALM_SECONDS: Final = 0.5
"""Minimum seconds between two drawings."""

_PLAIN_WIDTH: Final = 200
"""Width if there is no terminal: programs read long lines more easily than broken ones."""


async def show_once(client: AsyncClient, name: str, *, form: str | None) -> int:
    """Print the job as it is, in ``json`` or ``yaml`` or for people. Returns the exit code. Raises ApiError."""
    overview = await gather(client.gateway, name, namespace=client.namespace)
    if form is not None:
        write(_dumped(overview, form))
        return Exit.OK
    console = _console()
    console.print(status_view(overview, width=console.width, typed=_typed))
    return Exit.OK


def _dumped(overview: Overview, form: str) -> str:
    body = overview.to_object()
    return as_json(body, indent=2) if form == "json" else yaml.safe_dump(body, sort_keys=False)


def _typed(words: Sequence[str]) -> str:
    program, *arguments = words
    return next_kubectl(*arguments) if program == "kubectl" else next_command(*arguments)


def _screen() -> Screen[Overview]:
    console = _console()
    return Screen(console, drawn=lambda seen, width: status_view(seen, width=width, typed=_typed), lines=_changes)


def _changes(before: Overview | None, now: Overview) -> Iterator[str]:
    line = change_line(now)
    if before is None or line != change_line(before):
        yield f"{now.at:%H:%M:%S}  {line}"


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


async def watch(client: AsyncClient, name: str) -> int:
    """Show the job at each change until it has ended or is deleted. Returns the exit code. Raises ApiError."""
    overview = await gather(client.gateway, name, namespace=client.namespace)
    uid = overview.job.uid
    changed = asyncio.Event()
    following = asyncio.create_task(_follow(client, name, changed))
    screen = _screen()
    try:
        with screen.shown():
            while overview.job.uid == uid:
                screen.show(overview)
                if overview.job.status.terminal:
                    return Exit.OK
                await _next_change(changed)
                overview = await _gathered(client, name, overview)
        say(f"{name} was deleted and created again.", err=True)
        return Exit.OK
    except NotFound:
        say(f"{name} was deleted.", err=True)
        return Exit.OK
    except asyncio.CancelledError:
        say(f"{name} continues to run.", err=True)
        raise
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _follow(client: AsyncClient, name: str, changed: asyncio.Event) -> None:
    """Set ``changed`` when the job changes. If it cannot be followed, the job is read at intervals."""
    for delay in Backoff(base=1.0, cap=30.0):
        try:
            async with aclosing(client.follow(name)) as jobs:
                async for _ in jobs:
                    changed.set()
        except ApiError:
            pass
        changed.set()
        await asyncio.sleep(delay)


async def _next_change(changed: asyncio.Event) -> None:
    await asyncio.sleep(_CALM_SECONDS)
    try:
        await asyncio.wait_for(changed.wait(), _REFRESH_SECONDS)
    except TimeoutError:
        return
    changed.clear()


async def _gathered(client: AsyncClient, name: str, before: Overview) -> Overview:
    """The job as it is now, or as it was if the cluster does not answer at present."""
    try:
        return await gather(client.gateway, name, namespace=client.namespace)
    except Unavailable:
        return before
