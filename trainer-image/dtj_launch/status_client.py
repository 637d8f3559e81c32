"""Reads what the program reports of its progress, from its status port if it has one."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException

_EVERY_SECONDS = 1.0
_AFTER_SILENCE_SECONDS = 3.0
_ANSWER_SECONDS = 0.3
_MAX_BYTES = 65536
_HERE = "127.0.0.1"


class StatusPoller:
    """The last status that one start of the program reported; polled at intervals."""

    def __init__(self, port: int | None, *, host: str = "") -> None:
        """Args:
        port: None where there is nobody to ask.
        host: the address that the program listens on; empty: all of them.
        """
        self.step: int | None = None
        """None where it never answered; 0 before its first step."""
        self.at_gate = False
        """Whether it waits for its peers. There it answers; while TensorFlow connects to them, it cannot."""
        self._port, self._host = port, host or _HERE
        self._next = time.monotonic() + _EVERY_SECONDS

    def poll(self) -> float | None:
        """Asks where it is time to. Returns in how many seconds to come again; None where there is nobody to ask."""
        if self._port is None:
            return None
        left = self._next - time.monotonic()
        if left > 0:
            return left
        document = _status(self._host, self._port)
        self.at_gate = document is not None and document.get("phase") == "Gate"
        if document is not None:
            step = document.get("step")
            self.step = step if isinstance(step, int) else self.step or 0
        wait = _AFTER_SILENCE_SECONDS if document is None else _EVERY_SECONDS
        self._next = time.monotonic() + wait
        return wait


def status_port(environ: Mapping[str, str]) -> int | None:
    """Where the operator asks, too."""
    text = environ.get("DTJ_STATUS_PORT", "")
    return int(text) if text.isdecimal() and 0 < int(text) < 65536 else None


def _status(host: str, port: int) -> Mapping[str, object] | None:
    asked = HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    with closing(asked), suppress(OSError, ValueError, HTTPException):
        asked.request("GET", "/status")
        document = json.loads(asked.getresponse().read(_MAX_BYTES))
        return document if isinstance(document, dict) else None
    return None
