"""How commands print and how they end: exit codes, and output in which nothing that others wrote acts on a terminal.

Names, messages, logs and manifests are other people's. These functions clean them (:mod:`dtj.api.printable`) and bound
their length. No other module of this room prints, apart from :mod:`dtj.cli.common.console`: the linter checks it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import suppress
from enum import IntEnum
from typing import Final, TextIO

import click

from dtj.api.printable import one_line, printable

MAX_LINE: Final = 2000
"""Most characters that are printed of one text: a status may hold 32 KiB of a program's output, and more."""


def say(text: str, *, err: bool = False) -> None:
    """Print one line."""
    click.echo(one_line(text, MAX_LINE), err=err)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print a text whose line breaks and tabs are ours; it ends with a line break."""
    click.echo(printable(text.removesuffix("\n")), err=err)


def write(document: str) -> None:
    """Print JSON or YAML for programs. Their writers escape what is not printable, so nothing of it is lost here.

    Programs read UTF-8, whatever the language of the terminal; a terminal gets what it can show.
    """
    text = printable(document)
    shown = sys.stdout is not None and sys.stdout.isatty()
    click.echo(text if shown else text.encode(), nl=False)


def copy_line(line: str) -> None:
    """Print a line of a log as the program wrote it, in UTF-8: for a file or a program that reads it, never for a
    terminal."""
    click.echo(line.encode(errors="replace"))  # of a text, click would leave out some sequences, and not others


def show_error(error: click.ClickException) -> None:
    """Print what click says of wrong arguments, which others may have chosen (``dtj logs $(...)``), in one line."""
    message = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        say(message, err=True)
        return
    use = "lists the commands" if isinstance(context.command, click.Group) else "shows the options"
    say(f"{context.command_path}: {message} ({context.command_path} -h {use})", err=True)


def discard_from_now_on(stream: TextIO) -> None:
    """Send all that is written to ``stream`` to /dev/null, also what it holds because it could not be written: Python
    tries that again when it exits, and would leave with a code of its own."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def discard_unwritable() -> None:
    """Discard what standard output and standard error hold but cannot write."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            discard_from_now_on(stream)


class SafeHandler(logging.Handler):
    """Prints warnings of our own libraries, which hold a server's words, as logging's handler of last resort does."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message on standard error if that can be written: as with logging's handlers, it is no error if
        it cannot."""
        with suppress(OSError):
            say(self.format(record), err=True)


# -- how commands end -------------------------------------------------------------------------------------------


class Exit(IntEnum):
    """0 to 4 are about what was asked for; 70 is a defect of ours, 74 a disk that is full; 128 and more say that a
    signal ended it."""

    OK = 0
    FAILED = 1
    """The job failed."""

    USAGE = 2
    """Bad input: one line has reported what is wrong, and nothing was run."""

    TIMEOUT = 3
    """The time that was given is over."""

    API = 4
    """The cluster cannot be reached, or it refused."""

    DEFECT = 70
    """A defect of ``dtj`` itself; a traceback says where. Not 1, which a script takes for a job that failed."""

    OUTPUT = 74
    """The output cannot be written, as on a full disk: EX_IOERR of sysexits.h."""

    SIGNAL = 128
    """Plus the number of the signal: 130 after Ctrl-C, 141 if the reader of the output has gone."""


_ASK_TO_END: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signals_that_end() -> tuple[signal.Signals, ...]:
    """Those that this process does not ignore, as it ignores SIGHUP under nohup, and SIGINT in the background of a
    script."""
    return tuple(number for number in _ASK_TO_END if signal.getsignal(number) != signal.SIG_IGN)
