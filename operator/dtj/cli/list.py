"""``dtj list``: the jobs of a namespace, or of all, in the columns that ``kubectl get dtj`` has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from dtj.api.printable import one_line
from dtj.cli.common.connection import cluster_command
from dtj.cli.common.formatting import dumped, short_time
from dtj.cli.common.terminal import Exit, say, write

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dtj.api.json import JsonObject
    from dtj.client import AsyncClient

Row: TypeAlias = tuple[str, ...]
Jobs: TypeAlias = "Mapping[str, JsonObject]"

_FORMS: Final = ("wide", "json", "yaml", "name")
_GAP: Final = 3

_MAX_CELL: Final = 63
"""Characters of the longest name; no state or reason of ours is longer, but anybody may write another."""

TICK: Final = 1.0
"""Seconds between two drawings of jobs that do not change: they grow older."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="List jobs with these labels, such as team=a.")
@click.option("-o", "--output", type=click.Choice(_FORMS), help="More columns, whole objects, or names alone.")
@click.option("-w", "--watch", is_flag=True, help="Keep showing changes until Ctrl-C.")
@cluster_command
async def list_jobs(client: AsyncClient, all_namespaces: bool, selector: str, output: str | None, watch: bool) -> int:
    """List the jobs of a namespace, by name.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer, 130 after Ctrl-C.
    """
    wide = output == "wide"
    nothing = f"No jobs in {'any namespace' if all_namespaces else f'namespace {client.namespace}'}."
    if watch and output is not None and not wide:
        raise click.UsageError(f"--watch shows a table: use it without -o {output}")
    if watch:
        await _watch(client, all_namespaces, selector, wide=wide, nothing=nothing)
        return Exit.OK
    found = await client.list_objects(all_namespaces=all_namespaces, selector=selector)
    if output in ("json", "yaml") or (output == "name" and found):
        write(dumped(found, output))
    elif not found:
        say(nothing, err=True)
    else:
        for line in padded(job_rows(found, now=datetime.now(UTC), namespaced=all_namespaces, wide=wide)):
            say(line)
    return Exit.OK


def job_rows(jobs: Iterable[JsonObject], *, now: datetime, namespaced: bool, wide: bool) -> tuple[Row, ...]:
    """The titles, and a row for each job: its name, and the columns that the CRD lists."""
    from dtj.api.crd import PRINTER_COLUMNS

    columns = [("Namespace", "string", ".metadata.namespace")] if namespaced else []
    columns += [("Name", "string", ".metadata.name")]
    columns += [(name, kind, path) for name, kind, path, priority in PRINTER_COLUMNS if wide or not priority]
    titles = tuple(name.upper() for name, _, _ in columns)
    return (titles, *(tuple(_cell(job, kind, path, now) for _, kind, path in columns) for job in jobs))


def _cell(job: JsonObject, kind: str, path: str, now: datetime) -> str:
    """What kubectl shows of a value. Of a job on its way out, kubectl shows the last state; here it is Deleting."""
    from dtj.api.job import parse_time
    from dtj.api.json import dig

    value = dig(job, *path.removeprefix(".").split("."))
    if path == ".status.state" and dig(job, "metadata", "deletionTimestamp") is not None:
        return "Deleting"
    if kind == "date":
        moment = parse_time(value)
        return short_time((now - moment).total_seconds()) if moment is not None else ""
    if kind == "integer" and isinstance(value, float):
        return str(round(value))
    return one_line(str(value), _MAX_CELL) if value is not None else ""


def padded(rows: Sequence[Row], *, least: Sequence[int] = ()) -> tuple[str, ...]:
    """The rows as lines; no column is narrower than ``least`` says."""
    wanted = _widths(rows, least)
    return tuple(
        (" " * _GAP).join(cell.ljust(width) for cell, width in zip(row, wanted, strict=True)).rstrip() for row in rows
    )


def _widths(rows: Sequence[Row], least: Sequence[int]) -> tuple[int, ...]:
    needed = tuple(max(map(len, column)) for column in zip(*rows, strict=True))
    return tuple(map(max, needed, least)) if least else needed


# -- watching ---------------------------------------------------------------------------------------------------


async def _watch(client: AsyncClient, all_namespaces: bool, selector: str, *, wide: bool, nothing: str) -> None:
    """Show the jobs, and each change of them, until the task is cancelled."""
    from rich.console import Group

    from dtj.cli.common.console import Console, Screen, Text

    def rows(jobs: Iterable[JsonObject]) -> tuple[Row, ...]:
        return job_rows(sorted(jobs, key=_key), now=datetime.now(UTC), namespaced=all_namespaces, wide=wide)

    def drawn(jobs: Jobs, _width: int) -> RenderableType:
        lines = padded(rows(jobs.values())) if jobs else (nothing,)
        return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))

    screen = Screen(Console(highlight=False), drawn=drawn, lines=_Changes(rows))
    changes = client.follow_objects(all_namespaces=all_namespaces, selector=selector)
    with screen.shown():
        async with aclosing(_with_ticks(changes)) as ticking:
            async for jobs in ticking:
                screen.show(jobs)


async def _with_ticks(changes: AsyncGenerator[Jobs, None]) -> AsyncGenerator[Jobs, None]:
    """The jobs at each change, and again after a time without one; ends with the changes."""
    import asyncio

    jobs: Jobs | None = None
    pending = asyncio.ensure_future(anext(changes, None))
    try:
        while True:
            done, _ = await asyncio.wait({pending}, timeout=TICK)
            if done:
                jobs = pending.result()
                if jobs is None:
                    return
                pending = asyncio.ensure_future(anext(changes, None))
            if jobs is not None:
                yield jobs
    finally:
        pending.cancel()
        with suppress(asyncio.CancelledError):
            await pending
        await changes.aclose()


class _Changes:
    """A line for each job that changed, its age aside, and for each that is gone; columns only grow wider."""

    def __init__(self, rows: Callable[[Iterable[JsonObject]], tuple[Row, ...]]) -> None:
        self._rows = rows
        self._least: tuple[int, ...] = ()

    def __call__(self, before: Jobs | None, now: Jobs) -> Iterable[str]:
        if now is before:  # a tick: they have only grown older
            return
        known = before or {}
        changed = [job for uid, job in now.items() if uid not in known or _shown(known[uid]) != _shown(job)]
        gone = sorted((job for uid, job in known.items() if uid not in now), key=_key)
        rows = self._rows(changed)
        lines = padded(rows, least=self._least)
        self._least = _widths(rows, self._least)
        yield from lines[0 if before is None else 1 :]
        yield from (f"{_key(job)[1]} deleted" for job in gone)


def _shown(job: JsonObject) -> Row:
    return job_rows([job], now=_NEVER, namespaced=True, wide=True)[1]


def _key(job: JsonObject) -> tuple[str, str]:
    from dtj.api.json import dig, text

    return text(dig(job, "metadata", "namespace")), text(dig(job, "metadata", "name"))
