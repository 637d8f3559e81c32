"""The launcher's own lines, and the last words of what it cannot start."""

from __future__ import annotations

import json
import logging
import os
import select
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from . import logs
from .errors import CORRUPT
from .logs import LogOptions

log = logging.getLogger(__name__)

MESSAGE_BYTES = 4096
"""What Kubernetes takes of a termination message: of a longer one, the end."""


def write(sink: int, text: bytes) -> None:
    """Writes all of it, however slow the reader is; nothing, where nobody can read any more."""
    left = memoryview(text)
    while left:
        try:
            left = left[os.write(sink, left) :]
        except BlockingIOError:
            select.select([], [sink], [])
        except OSError:
            return


def flush() -> None:
    """Writes what Python holds back of standard output and standard error, before a process ends or forks.

    On a full disk, without a reader, or with an object of a script's in their place, it goes on without.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # whatever a script has put there may raise anything
            stream.flush()


def configure_logs(options: LogOptions, environ: Mapping[str, str]) -> None:
    """Has the launcher's own lines go to standard error: standard output is the program's."""
    logs.configure(
        __package__ or "dtj_launch",
        options,
        plain=logs.PlainFormatter("dtj-launch", always=True),
        context=logs.context_of(environ),
        write=lambda _, text: write(2, text.encode(errors="replace")),
    )


def as_message(words: str) -> bytes:
    """Words as a line of a termination message that Kubernetes takes as a whole.

    The end of words that are too long is left out: the beginning says whether a restart can help.
    """
    # In whole characters.
    kept = words.encode(errors="replace")[: MESSAGE_BYTES - 1].decode(errors="ignore")
    return kept.encode() + b"\n"


class TerminationMessage:
    """The file that Kubernetes reads a container's last words from; a program may write there itself."""

    def __init__(self, given: str | None) -> None:
        self._path = given or "/dev/termination-log"
        self._there = bool(given) or os.access(self._path, os.W_OK)

    def forget(self) -> None:
        """What was written before is not the end that counts."""
        if self._there and os.path.exists(self._path):
            with suppress(OSError), open(self._path, "wb"):
                pass

    @property
    def corrupt(self) -> dict[str, Any]:
        """What a program that has ended left of replicas that differ; nothing where it left nothing."""
        if self._there:
            with suppress(OSError, ValueError, LookupError, TypeError), open(self._path, "rb") as file:
                found = json.loads(file.read(MESSAGE_BYTES).splitlines()[-1])[CORRUPT]
                if isinstance(found, dict):
                    return found
        return {}

    @corrupt.setter
    def corrupt(self, found: Mapping[str, Any]) -> None:
        with suppress(OSError), open(self._path, "rb+") as file:
            *lines, _ = file.read().splitlines()
            file.seek(0)
            file.write(b"\n".join([*lines, json.dumps({CORRUPT: found}).encode(), b""]))
            file.truncate()

    def leave(self, text: str) -> None:
        """Writes them, in place of what a program has left."""
        if not self._there:
            return
        try:
            with open(self._path, "wb") as file:
                file.write(as_message(text))
        except OSError as error:
            log.warning(f"last words not written to {self._path}: {error.strerror}")
