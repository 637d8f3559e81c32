"""Real launchers with small programs below them, found and ended by the test that started them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from support.waiting import eventually

SOURCE = Path(__file__).resolve().parents[2] / "trainer-image"
LAUNCHER = (sys.executable, "-m", "dtj_launch")


class Launched:
    """One launcher; its output is in two files, and its last words in a third."""

    def __init__(
        self, folder: Path, name: str, arguments: Sequence[str], *, launcher: Sequence[str] = LAUNCHER, **environ: str
    ) -> None:
        self.out, self.err, self.words = (folder / f"{name}.{kind}" for kind in ("out", "err", "words"))
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("DTJ_", "TF_CONFIG"))}
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [*launcher, *arguments],
                env={**inherited, "PYTHONPATH": str(SOURCE), "DTJ_TERMINATION_LOG": str(self.words), **environ},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def wait(self) -> int:
        return self.process.wait(60)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_for(self, pattern: str, *, times: int = 1) -> None:
        """Waits until its output has this many matches."""

        def there() -> None:
            found = re.findall(pattern, self.output, re.MULTILINE)
            assert len(found) >= times, self.output

        eventually(there)

    @property
    def output(self) -> str:
        return self.out.read_text() + self.err.read_text()

    @property
    def last_words(self) -> str:
        return self.words.read_text() if self.words.exists() else ""

    @property
    def children(self) -> list[int]:
        return children_of(self.process.pid)

    def end(self) -> None:
        """Whatever it does: with it goes its program."""
        self.process.kill()
        self.process.wait()


Launch = Callable[..., Launched]
"""Starts a launcher with these arguments and variables."""


def children_of(parent: int) -> list[int]:
    """The processes whose parent this is, zombies too."""
    return [pid for pid, (_, above) in _processes().items() if above == parent]


def state_of(pid: int) -> str:
    """One letter, as ps has it; empty where there is no such process."""
    return _processes().get(pid, ("", 0))[0]


def _processes() -> dict[int, tuple[str, int]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            found[int(entry.name)] = (state, int(parent))
    return found


def cluster_of(count: int) -> list[str]:
    """TF_CONFIG of each worker of a job, on ports that are free."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    workers = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    for probe in probes:
        probe.close()
    return [
        json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
        for index in range(count)
    ]


MEMBER = (
    sys.executable,
    "-c",
    "import os, signal, time\n"
    "signal.signal(signal.SIGUSR1, lambda *_: os._exit(75))\n"
    "print('run', os.environ['DTJ_RESTARTS_IN_PLACE'], flush=True)\n"
    "while True: time.sleep(1)",
)
"""A program that says which start it is, and loses a peer when it gets SIGUSR1."""
