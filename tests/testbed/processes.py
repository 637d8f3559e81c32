"""Starts, finds and ends the testbed's processes, from any process of the test run.

A process is known by its file `<run>/processes/<name>`, which names its supervisor (see `supervise`), so that who
stops it need not be who started it. Linux only: /proc says what is alive.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from patience import PATIENCE_SECONDS, pause_after
from testbed import supervise
from testbed.errors import StartError

PROC = Path("/proc")
PYTHON = sys.executable


@dataclass(frozen=True)
class Stat:
    """What /proc knows of a process: its state letter, process group, start (clock ticks since boot) and RSS."""

    state: str
    group: int
    started: int
    rss_bytes: int

    @property
    def alive(self) -> bool:
        """Whether it still runs: a zombie only waits for its parent."""
        return self.state not in "ZX"


def stat(pid: int) -> Stat | None:
    """What is known of process `pid`, or None where there is no such process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command in parentheses may hold spaces and parentheses; the numbered fields follow the last one.
    fields = text[text.rindex(")") + 2 :].split()
    pages = int(fields[21])
    return Stat(fields[0], int(fields[2]), int(fields[19]), pages * os.sysconf("SC_PAGE_SIZE"))


def identify(pid: int) -> str:
    """A text that names process `pid`, and no later process that gets the same pid. For `find`."""
    known = stat(pid)
    return f"{pid} {known.started if known else 0}"


def find(identity: str) -> int | None:
    """The pid of the process that `identify` named, or None when it has ended."""
    pid, started = map(int, identity.split())
    known = stat(pid)
    return pid if known is not None and known.alive and known.started == started else None


def group_members(group: int) -> list[int]:
    """The pids of the live processes in a process group."""
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if (known := stat(pid)) is not None and known.alive and known.group == group]


def wait_until(condition: Callable[[], bool], *, what: str) -> None:
    """Return as soon as `condition` holds; raise `StartError` naming `what` when it does not in time."""
    limit = time.monotonic() + PATIENCE_SECONDS
    asked = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now > limit:
            raise StartError(f"waited {PATIENCE_SECONDS:.0f} s in vain for {what}")
        time.sleep(pause_after(now - asked))
        asked = time.monotonic()


def output(*command: str, stdin: str | None = None) -> str:
    """What a command writes. Raises `StartError` where it fails, with what it says."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StartError(f"{shlex.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


class Process:
    """One process of a run, by name. Its output goes to `log`."""

    def __init__(self, name: str, *, run: Path) -> None:
        self.name = name
        self.log = run / f"{name}.log"
        self._file = run / "processes" / name
        self._run = run
        self._started: subprocess.Popen[bytes] | None = None

    def start(self, command: list[str], *, owner: int, machine: int = 0) -> None:
        """Start `command`, in the machine whose first process is `machine` (0: here).

        It ends with process `owner` (0: it outlives everyone).
        """
        self._file.parent.mkdir(exist_ok=True)
        arguments = [PYTHON, "-I", supervise.__file__, str(owner), str(machine), *command]
        # Go collects garbage less often: an eighth of the CPU time of a control plane, for 200 MB.
        environ = {"GOGC": "300", **os.environ}
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for pytest, which then ends its processes itself.
            self._started = subprocess.Popen(
                arguments,
                cwd=self._run,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._file.write_text(identify(self._started.pid))

    @property
    def supervisor(self) -> int | None:
        """The pid of its supervisor, which is its process group too; None when it does not run."""
        return find(self._file.read_text()) if self._file.exists() else None

    @property
    def pids(self) -> list[int]:
        """The live processes: supervisor and command."""
        group = self.supervisor
        return group_members(group) if group else []

    def kill(self) -> None:
        """Kill it and wait until it is gone, its ports free again."""
        if supervisor_pid := self.supervisor:
            os.kill(supervisor_pid, signal.SIGTERM)
            wait_until(lambda: not self.pids, what=f"the end of {self.name}")
        if self._started is not None:
            self._started.wait()
        self._file.unlink(missing_ok=True)

    def await_ready(self, ready: Callable[[], bool]) -> None:
        """Return once `ready()`; raise `StartError` with the end of the log if it dies or takes longer."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            if not self.pids:
                raise StartError(f"{self.name} ended; its log ends with:\n{self._tail()}")
            if time.monotonic() > limit:
                waited = f"{self.name} is not ready after {PATIENCE_SECONDS:.0f} s"
                raise StartError(f"{waited}; its log ends with:\n{self._tail()}")
            time.sleep(0.02)

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
