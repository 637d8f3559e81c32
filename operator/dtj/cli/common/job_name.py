"""The name of a job as an argument, which a Tab completes from the cluster.

A command takes the name of a job by ``@click.argument("name", type=JobName())``: ``digits`` and ``dtj/digits`` are the
same job, and Tab asks the cluster that ``-n``, ``--context`` and ``--kubeconfig`` select so far.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import click
from click.shell_completion import CompletionItem

from dtj.api import names
from dtj.api.printable import one_line
from dtj.cli.common.connection import Place

PATIENCE: Final = 2.0
"""Seconds that a person who presses Tab waits for a cluster at most."""

_KINDS: Final = (names.SHORT_NAME, names.SINGULAR, names.PLURAL, f"{names.PLURAL}.{names.GROUP}")


class JobName(click.ParamType):  # type: ignore[type-arg]  # not generic in the oldest click that we take
    """The name of a job: ``digits``, or as kubectl prints it, ``distributedtrainingjob.training.dtj.dev/digits``."""

    name = "job"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, slash, name = value.rpartition("/")
        if slash and kind not in (*_KINDS, f"{names.SINGULAR}.{names.GROUP}"):
            self.fail(f'"{value}" is of another kind: write NAME or {names.SHORT_NAME}/NAME', param, ctx)
        if not name:
            self.fail("the name of a job must not be empty", param, ctx)
        if name != one_line(name):
            self.fail(f"{name!a} cannot be the name of a job: use lower-case letters, digits and '-'", param, ctx)
        return name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        kind, slash, begun = incomplete.rpartition("/")
        taken = ctx.params.get(param.name or "")
        others = taken if isinstance(taken, tuple) else ()
        found = (name for name in _job_names(_place(ctx)) if name.startswith(begun) and name not in others)
        # A shell takes a line for a candidate, and a terminal shows it: names of jobs are plain, a server's may not be.
        return [CompletionItem(f"{kind}{slash}{name}") for name in found if name == one_line(name)]


def _place(context: click.Context) -> Place:
    """The cluster that the options typed so far select."""
    given = context.params
    return Place(given.get("namespace"), given.get("context"), given.get("kubeconfig"))


def _job_names(place: Place) -> list[str]:
    """The jobs there; none if the cluster does not answer in time: after a Tab there is no place for an error."""
    import asyncio

    from dtj.client import ApiError, ConfigError

    with suppress(ApiError, ConfigError, OSError, TimeoutError):
        return asyncio.run(asyncio.wait_for(_ask(place), PATIENCE))
    return []


async def _ask(place: Place) -> list[str]:
    async with await place.connect() as client:
        return [job.name for job in await client.list()]
