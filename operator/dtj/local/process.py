"""One process of this machine that plays a pod's main container: started, asked to stop, killed, waited for."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from dtj.local import shim
from dtj.local.run_directory import append_privately

_GONE_SECONDS: Final = 5.0
"""In which what is killed is gone, unless the machine stands still."""
_TAIL_BYTES: Final = 2048
_TAIL_LINES: Final = 80
"""What the kubelet takes of a log for a termination message (FallbackToLogsOnError)."""


class Process:
    """A running command with its own process group; its output goes to a file. Make one with :meth:`start`."""

    def __init__(self, running: asyncio.subprocess.Process) -> None:
        self._running = running

    @classmethod
    async def start(cls, command: Sequence[str], *, environment: Mapping[str, str], log: Path) -> Process:
        """Run ``command``; that it does not exist shows as exit code 127. Raises OSError for the log file alone."""
        with append_privately(log) as output:
            running = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                shim.__file__,
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,  # Ctrl-C in the terminal is the runner's alone
            )
        return cls(running)

    @property
    def pid(self) -> int:
        """Process id of the shim."""
        return self._running.pid

    def terminate(self) -> None:
        """Ask the whole process group to end (SIGTERM)."""
        if self._running.returncode is None:
            self._running.terminate()

    def kill(self) -> None:
        """End the whole process group at once."""
        if self._running.stdin is not None:
            self._running.stdin.close()

    async def end(self) -> None:
        """Kill it and see it gone: of what ends after the event loop, asyncio speaks in the terminal."""
        self.kill()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._running.wait(), _GONE_SECONDS)

    async def wait(self) -> int:
        """The exit code; 128 + number where a signal ended it."""
        code = await self._running.wait()
        return code if code >= 0 else 128 - code


def tail(log: Path, *, since: int = 0) -> str:
    """The last lines of a log from byte ``since`` on, as much as a termination message holds; empty where there is
    none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
