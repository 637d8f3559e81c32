"""The commands of ``dtj`` under headings, in the order in which a person needs them."""

from __future__ import annotations

from enum import StrEnum

import click


class Section(StrEnum):
    """The headings of ``dtj --help``."""

    START = "Start here"
    LOCAL = "On this machine"
    CLUSTER = "On a cluster"
    LOOK = "Look"
    STEER = "Steer"
    TOOLS = "Tools"


class SectionedGroup(click.Group):
    """A group whose help lists its commands by section."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.sections: dict[str, Section] = {}

    def add_command(self, cmd: click.Command, name: str | None = None, *, section: Section = Section.TOOLS) -> None:
        """Add a command below the heading of its section."""
        super().add_command(cmd, name)
        self.sections[name or cmd.name or ""] = section

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands by section, within it in the order in which they were added."""
        return [name for section in Section for name in self.commands if self.sections[name] is section]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        width = max(map(len, names), default=0)
        limit = formatter.width - 6 - width
        for section in Section:
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(limit))
                for name in names
                if self.sections[name] is section
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)
