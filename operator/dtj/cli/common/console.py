"""Text and tables on a terminal, by rich, so that nothing that others wrote acts on the terminal.

:class:`Text` cleans what it is given (:mod:`dtj.api.printable`) and bounds its length; :class:`Console` cleans
once more what is drawn, in case it came another way. No other module of this room makes a Text or a Console of rich: a
test checks it. It is apart from :mod:`dtj.cli.common.terminal` because importing rich takes time that a Tab lacks.
"""

from __future__ import annotations

import logging
import os
import re
import select
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import IO, Any, Final, Generic, TextIO, TypeVar, cast

import rich.console
import rich.text
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from dtj.api.printable import one_line, printable
from dtj.cli.common.terminal import MAX_LINE, discard_from_now_on

T = TypeVar("T")

log = logging.getLogger(__name__)

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


_STATE_COLOURS: Final = {
    "Succeeded": "green",
    "Running": "cyan",
    "Training": "cyan",
    "Failed": "bold red",
    "Stopping": "yellow",
    "Suspended": "yellow",
    "Restarting": "yellow",
    "Stopped": "dim",
}


def coloured_state(state: str, *, otherwise: str = "") -> Text:
    """The state of a job or of a pod, such as ``Failed (3)``, in its colour; one without a colour in ``otherwise``."""
    return Text(state, style=_STATE_COLOURS.get(state.partition(" ")[0], otherwise))


def stacked(lines: Iterable[Text]) -> rich.text.Text:
    """Lines below each other, as one thing to draw."""
    return rich.text.Text("\n").join(lines)


def _plain() -> bool:
    return bool(os.environ.get("NO_COLOR"))


class Console(rich.console.Console):
    """A console that draws no character that a terminal obeys but those of our own layout, and none at all if NO_COLOR
    is set."""

    def __init__(self, **layout: Any) -> None:
        if _plain():
            layout["color_system"] = None  # else rich would leave out colours, and write bold and dim
        super().__init__(**layout)

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal: with FORCE_COLOR, rich takes a pipe for one."""
        return super().is_terminal and ("FORCE_COLOR" not in os.environ or self.file.isatty())

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """As rich renders it, cleaned."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else _cleaned(segment)

    def takes_output(self) -> bool:
        """Whether it may be written to now: what must go on does not wait for whoever reads it."""
        return not isinstance(self.file, _Unfailing) or self.file.takes_output()

    def on_broken_pipe(self) -> None:
        """Leave it to the command: rich would leave with code 1, which a script takes for a job that failed."""
        raise  # rich calls this where it has caught the error


def _cleaned(segment: Segment) -> Segment:
    style = segment.style
    if style is not None and style.link is not None:  # which goes to the terminal as it is, next to the text
        style = style.update_link(None)
    return Segment(printable(segment.text), style)


class _Unfailing:
    """A stream that nobody may read to its end: after the first failed write, all goes to /dev/null."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or give up."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """Flush, or give up."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def takes_output(self) -> bool:
        """Whether a few lines could be written at once: not by a paused terminal, nor a pipe whose reader does not
        read."""
        try:
            return bool(select.select((), (self._stream,), (), 0)[1])
        except (OSError, ValueError):  # it has no descriptor, or one that is closed
            return True

    def _give_up(self, error: OSError) -> None:
        discard_from_now_on(self._stream)
        log.warning("%s cannot be written, and gets no more: %s", self._stream.name, error.strerror)


def unfailing_console(*, stderr: bool = False) -> Console:
    """A console for what goes on even if its terminal or its reader is gone, or the disk is full: no write raises."""
    stream: TextIO | None = sys.stderr if stderr else sys.stdout
    # There is no stream if the descriptor was closed before the start.
    file = cast("IO[str]", _Unfailing(stream)) if stream is not None else None
    return Console(file=file, stderr=stderr, highlight=False)


class Screen(Generic[T]):
    """Shows something until it ends: drawn again in place on a terminal, elsewhere a line for each change.

    ``drawn`` is what a terminal of some width shows of it, ``lines`` what there is to say of a change where nothing can
    be drawn, and ``kept`` what is said of it in both places; before the first change there is None.
    """

    def __init__(
        self,
        console: Console,
        *,
        drawn: Callable[[T, int], rich.console.RenderableType],
        lines: Callable[[T | None, T], Iterable[str]],
        kept: Callable[[T | None, T], Iterable[str]] = lambda before, now: (),
    ) -> None:
        self._console = console
        self._drawn = drawn
        self._lines = lines
        self._kept = kept
        self._before: T | None = None
        # Drawn by `show` alone, not by a thread of its own, and nothing is redirected: all that a command prints goes
        # through its console.
        self._live = (
            Live(
                console=console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            if console.is_terminal and not console.is_dumb_terminal and not _plain()
            else None
        )

    @property
    def draws(self) -> bool:
        """Whether it is drawn again in place."""
        return self._live is not None

    def shown(self) -> AbstractContextManager[object]:
        """The context in which it is shown."""
        return self._live if self._live is not None else nullcontext()

    def show(self, now: T) -> None:
        """What it is now; later, if the console cannot take it at once."""
        if not self._console.takes_output():
            return
        for line in self._kept(self._before, now):
            self.say(line)
        if self._live is not None:
            self._live.update(self._drawn(now, self._console.width), refresh=True)
        else:
            for line in self._lines(self._before, now):
                self.say(line)
        self._before = now

    def say(self, line: str) -> None:
        """A line that stays, above whatever moves. It is left out if the console cannot take it at once."""
        if not self._console.takes_output():
            return
        self._console.print(Text(line), soft_wrap=self._live is None)


# -- the block "Next": commands that can be typed, each with what for -------------------------------------------

TERMINAL_WIDTH: Final = 80
"""What lines are made for if nobody knows how wide the reader's terminal is."""

_INDENT: Final = "  "
_GAP: Final = "  # "


@dataclass(frozen=True, slots=True)
class Step:
    """A command, as it is typed, and its purpose."""

    command: str
    purpose: str


def next_block(steps: Sequence[Step], *, width: int = TERMINAL_WIDTH) -> Iterator[Text]:
    """The heading and :func:`step_lines`, indented."""
    yield Text("Next")
    for line in step_lines(steps, width=width - len(_INDENT)):
        yield Text.assemble(_INDENT, line)


def step_lines(steps: Sequence[Step], *, width: int) -> Iterator[Text]:
    """The purposes below each other, behind the commands; above them if one would not fit into ``width``.

    A command is never broken: it is to be copied.
    """
    commands = [Text(step.command, style="bold") for step in steps]
    column = max((command.cell_len for command in commands), default=0)
    behind = all(column + Text(_GAP + step.purpose).cell_len <= width for step in steps)
    for command, step in zip(commands, steps, strict=True):
        if behind:
            yield Text.assemble(command, " " * (column - command.cell_len), (_GAP + step.purpose, "dim"))
            continue
        for piece in textwrap.wrap(step.purpose, max(width - len("# "), 1), break_on_hyphens=False):
            yield Text.assemble((f"# {piece}", "dim"))
        yield command
