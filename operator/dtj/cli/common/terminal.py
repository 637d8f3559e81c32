"""All that the command line prints goes through here, so that nothing that others wrote acts on a terminal.

Names, messages, logs and manifests are other people's. :class:`Text` and the functions clean them
(:mod:`dtj.api.printable`) and bound their length; :class:`Console` cleans once more what is drawn, for whatever came
another way. No other module of this room prints, or makes a Text or a Console of rich: a test sees to that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import rich.console
import rich.text
from rich.segment import Segment
from rich.style import Style

from dtj.api.printable import one_line, printable

MAX_LINE: Final = 2000
"""Most characters of one thing that is said: a status may hold 32 KiB of somebody's words, and more."""

_COLOUR: Final = re.compile(r"(\x1b\[[0-9;]{0,32}m)")
"""SGR, the one sequence that changes nothing but the looks of what follows."""


class Text(rich.text.Text):
    """Text of one line, whatever others wrote in it.

    Its parts are strings, or texts that this module made; each string is cut to ``limit`` characters.
    """

    __slots__ = ("_limit",)

    def __init__(self, text: str = "", style: str | Style = "", *, limit: int | None = MAX_LINE, **layout: Any) -> None:
        self._limit = limit
        super().__init__(one_line(text, limit), style, **layout)

    @classmethod
    def assemble(cls, *parts: rich.text.Text | str | tuple[str, str | Style], **layout: Any) -> Text:
        """The parts after each other, some with a style of their own."""
        text = cls(**layout)
        for part in parts:
            text.append(*part) if isinstance(part, tuple) else text.append(part)
        return text

    def append(self, text: rich.text.Text | str, style: str | Style | None = None) -> Text:
        """Add a part."""
        super().append(one_line(text, self._limit) if isinstance(text, str) else text, style)
        return self


def coloured(line: str, limit: int | None = None) -> Text:
    """A line that a program wrote for a terminal: its colours stay; of a line that was written over and over, as a
    progress bar is, the last version."""
    last = line.rstrip("\r\n").rpartition("\r")[2]
    if limit is not None and len(last) > limit:
        return Text(last, limit=limit)
    parts = _COLOUR.split(last)
    cleaned = (part if place % 2 else printable(part).replace("\n", " ") for place, part in enumerate(parts))
    return Text().append(rich.text.Text.from_ansi("".join(cleaned)))


def stacked(lines: Iterable[Text]) -> rich.text.Text:
    """Lines below each other, as one thing to draw."""
    return rich.text.Text("\n").join(lines)


class Console(rich.console.Console):
    """A console that draws no character that a terminal obeys but those of our own layout."""

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """As rich renders it, cleaned."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else _cleaned(segment)


def _cleaned(segment: Segment) -> Segment:
    style = segment.style
    if style is not None and style.link is not None:  # which goes to the terminal as it is, next to the text
        style = style.update_link(None)
    return Segment(printable(segment.text), style)


def say(text: str, *, err: bool = False) -> None:
    """Print one line."""
    click.echo(one_line(text, MAX_LINE), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print a text whose line breaks and tabs are ours; it ends with a line break."""
    click.echo(printable(text.removesuffix("\n")), err=err)


def write(document: str) -> None:
    """Print JSON or YAML for programs. Their writers escape what is not printable, so nothing of it is lost here."""
    click.echo(printable(document), nl=False)


def copy_line(line: str) -> None:
    """Print a line of a log as the program wrote it: for a file or a program that reads it, never for a terminal."""
    print(line, flush=True)  # click would leave out some sequences, and not others


def show_error(error: click.ClickException) -> None:
    """Print what click says of wrong arguments, which others may have chosen: ``dtj logs $(...)``."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        say_lines(context.get_usage(), err=True)
        say(f"Try '{context.command_path} {context.help_option_names[0]}' for help.", err=True)
        say("", err=True)
    say(f"Error: {error.format_message()}", err=True)


class SafeHandler(logging.Handler):
    """Prints warnings of our own libraries, which hold a server's words, as logging's handler of last resort does."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message on standard error."""
        say(self.format(record), err=True)
