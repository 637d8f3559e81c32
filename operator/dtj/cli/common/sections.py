"""The commands of ``dtj`` under headings, in the order in which a person needs them, imported when they are used."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from itertools import pairwise
from typing import Final

import click
from click.shell_completion import CompletionItem

from dtj.cli.common.terminal import say_lines


class Section(StrEnum):
    """The headings of ``dtj --help``."""

    START = "Start here"
    LOCAL = "On this machine"
    CLUSTER = "On a cluster"
    LOOK = "Look"
    STEER = "Steer"
    TOOLS = "Tools"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command as ``dtj --help`` lists it. ``target`` is where it is defined: ``package.module:function``."""

    name: str
    section: Section
    target: str
    summary: str
    """The first sentence of the command's help."""


_EMPTY_OPTION: Final = re.compile(r"--[a-z-]+=")


def _refuse_empty(args: Sequence[str]) -> None:
    for before, argument in pairwise(args):
        if not argument:
            named = before if before.startswith("-") else "an argument"
        elif _EMPTY_OPTION.fullmatch(argument):
            named = argument
        else:
            continue
        raise click.UsageError(f"{named}: empty; give a value, or leave it out")


_LONGEST_NAME: Final = 255
"""What a file system takes, and what a name of Kubernetes may have at most."""


def _refuse_long(args: Sequence[str]) -> None:
    for before, argument in pairwise(args):
        option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
        longest = max(len(os.fsencode(part)) for part in value.split("/"))
        if longest > _LONGEST_NAME:
            named = option + equals if equals else before if before.startswith("-") else "an argument"
            raise click.UsageError(
                f"{named}: has a name of {longest} bytes; names of files and objects have {_LONGEST_NAME} at most"
            )


class SectionedGroup(click.Group):
    """A group whose help lists its commands by section, and which imports a command only to run or complete it."""

    def __init__(self, *args: object, entries: Sequence[Entry] = (), **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.entries = {entry.name: entry for section in Section for entry in entries if entry.section is section}
        # click suggests from these names after a typing error.
        self.commands = {entry.name: click.Command(entry.name, short_help=entry.summary) for entry in entries}
        self._imported: set[str] = set()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands by section, within it in the order in which they were given."""
        return list(self.entries)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Takes ``help`` and ``version``, which other programs have as commands, for the options of these names.

        Raises:
            UsageError: an argument is empty, as that of a variable which is not set. Click takes an empty path for the
                working directory. Or it is longer than any file system takes.
        """
        if not ctx.resilient_parsing:  # a Tab
            _refuse_empty(args)
            _refuse_long(args)
        if args[0] == "help" and len(args) > 1:
            return super().resolve_command(ctx, [args[1], "--help"])
        if args[0] == "help":
            say_lines(ctx.get_help())
            ctx.exit()
        if args[0] == "version":
            option = next(one for one in self.params if one.name == "version")
            assert option.callback is not None
            option.callback(ctx, option, True)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported if this is its first use; None if there is none of that name."""
        entry = self.entries.get(cmd_name)
        if entry is not None and cmd_name not in self._imported:
            module, _, function = entry.target.partition(":")
            self.commands[cmd_name] = getattr(import_module(module), function)
            self._imported.add(cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries), default=0)
        for section in Section:
            rows = [
                (entry.name.ljust(width), entry.summary) for entry in self.entries.values() if entry.section is section
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands with their summaries, and the group's own options."""
        found = [
            CompletionItem(entry.name, help=entry.summary)
            for entry in self.entries.values()
            if entry.name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]
