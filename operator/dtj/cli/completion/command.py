"""Completion in the shell: ``dtj completion``, kubectl's protocol for plugins, and names of jobs as an argument.

A command takes the name of a job by ``@click.argument("name", type=JobName())``: ``digits`` and ``dtj/digits`` are the
same job, and Tab asks the cluster that ``-n``, ``--context`` and ``--kubeconfig`` mean so far.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from dtj.api import names
from dtj.api.printable import one_line
from dtj.cli.common.connection import Place
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.terminal import say_lines, write
from dtj.client import ApiError, ConfigError

PROGRAM: Final = "dtj"
VARIABLE: Final = "_DTJ_COMPLETE"
"""The variable by which a shell asks the program for completions."""

PATIENCE: Final = 2.0
"""Seconds that a person who presses Tab waits for a cluster at most."""

_KINDS: Final = (names.SHORT_NAME, names.SINGULAR, names.PLURAL, f"{names.PLURAL}.{names.GROUP}")
_NO_FILES, _FILES = ":4", ":0"
"""Cobra's directives, which kubectl reads: the candidates are all there is, or files may follow."""


class JobName(click.ParamType):  # type: ignore[type-arg]  # not generic in the oldest click that we take
    """The name of a job: ``digits``, or as kubectl prints it, ``distributedtrainingjob.training.dtj.dev/digits``."""

    name = "job"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, slash, name = value.rpartition("/")
        if slash and kind not in (*_KINDS, f"{names.SINGULAR}.{names.GROUP}"):
            self.fail(f'"{value}" is of another kind: write NAME or {names.SHORT_NAME}/NAME', param, ctx)
        if not name:
            self.fail("the name of a job must not be empty", param, ctx)
        return name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        kind, slash, begun = incomplete.rpartition("/")
        taken = ctx.params.get(param.name or "")
        others = taken if isinstance(taken, tuple) else ()
        found = (name for name in _job_names(_place(ctx)) if name.startswith(begun) and name not in others)
        # A shell takes a line for a candidate, and a terminal shows it: names of jobs are plain, a server's may not be.
        return [CompletionItem(f"{kind}{slash}{name}") for name in found if name == one_line(name)]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print a script by which a shell completes commands and jobs.

    \b
    bash:  source <(dtj completion bash)         in ~/.bashrc
    zsh:   source <(dtj completion zsh)          in ~/.zshrc, after compinit
    fish:  dtj completion fish > ~/.config/fish/completions/dtj.fish

    For `kubectl dtj`, kubectl finds `kubectl_complete-dtj` on the PATH by itself.

    Exit codes: 0 done, 2 bad input.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    write(kind(root, {}, PROGRAM, VARIABLE).source())
    return Exit.OK


def kubectl_lines(cli: click.Command, words: list[str]) -> Iterable[str]:
    """What ``kubectl_complete-dtj`` answers to kubectl: candidates, and a directive at the end.

    ``words`` are those after ``kubectl dtj``; the last one, which may be empty, is the one to complete.
    """
    *before, incomplete = words or [""]
    found = ShellComplete(cli, {}, PROGRAM, VARIABLE).get_completions(before, incomplete)
    plain = [item for item in found if item.type == "plain"]
    yield from (f"{item.value}\t{item.help}" if item.help else str(item.value) for item in plain)
    yield _NO_FILES if len(plain) == len(found) else _FILES


def answer_kubectl() -> None:
    """The entry point ``kubectl_complete-dtj``."""
    from dtj.cli.main import cli  # which imports the commands, and they this module

    for line in kubectl_lines(cli, sys.argv[1:]):
        say_lines(line)


def _place(context: click.Context) -> Place:
    """The cluster that is meant by what stands on the command line so far."""
    given = context.params
    return Place(given.get("namespace"), given.get("context"), given.get("kubeconfig"))


def _job_names(place: Place) -> list[str]:
    """The jobs there; none where nobody answers in time: a Tab is no place for complaints."""
    with suppress(ApiError, ConfigError, OSError, TimeoutError):
        return asyncio.run(asyncio.wait_for(_ask(place), PATIENCE))
    return []


async def _ask(place: Place) -> list[str]:
    async with await place.connect() as client:
        return [job.name for job in await client.list()]
