"""Starts of the trainer that need not import TensorFlow again: a process that has imported it, and forks.

So the launcher starts a task again in its place, and its code does it here: the same imports before the fork, the same
steps after it. A server belongs to the process that made it, and ends with it in whatever way that ends; what it has
forked ends with the server. Linux alone.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from dtj_launch import child
from dtj_launch.topology import RestartRole, topology_of
from dtj_trainer.config.parsing import parse
from dtj_trainer.process.errors import TrainerError

MODULE = "dtj_trainer"
"""What is forked: `python -m` of it."""
_READ_LATE = ("DTJ_", "TF_CONFIG", "TF_DATA_SERVICE_ADDRESS", "CUDA_VISIBLE_DEVICES", "TEST_", "AWS_")
"""Variables that are read after a task starts; any other may be read while TensorFlow is imported."""
_PATH = "PYTHONPATH"
_LONGEST_REQUEST = 2**17


class Forked:
    """A process that a server has forked, with as much of `subprocess.Popen` as tests ask for."""

    def __init__(self, pid: int, reap: Callable[[int], int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._reap = reap
        # Its number is not given to another before it is reaped, which is when we ask for that.
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal, if it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not after this many seconds.
        """
        code = self._ended(timeout)
        if code is None:
            assert timeout is not None  # else it has ended
            raise subprocess.TimeoutExpired(MODULE, timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            end = select.poll()
            end.register(self._descriptor, select.POLLIN)
            if end.poll(None if timeout is None else 1000 * timeout):
                self.returncode = self._reap(self.pid)
                os.close(self._descriptor)
        return self.returncode


class ForkServer:
    """The process that forks, as this one knows it; started when it is first needed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Args:
        environ: what the server is started with, and what each of its children finds next to its job's variables.
        """
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def fits(self, arguments: Sequence[str], environ: Mapping[str, str], *, imported: bool = False) -> bool:
        """Whether a fork gives what a start would.

        It does not where a start is refused or does its work without TensorFlow, where a script would find more
        imported than Python itself has, and where the environment is another than the server's. Folders may be
        appended to its PYTHONPATH; they must not hold a module that the server has imported.

        Args:
            imported: a script may find TensorFlow and Keras imported.
        """
        if not sys.platform.startswith("linux") or _surroundings(environ) != _surroundings(self._environ):
            return False
        try:
            config = parse(arguments, environ)
        except TrainerError:
            return False
        preloads = config.preloads or (imported and config.script is not None)
        lean = topology_of(environ).restart_role is RestartRole.SERVER
        return preloads and not lean and self._appended(environ) is not None

    def fork(self, arguments: Sequence[str], environ: Mapping[str, str], *, folder: Path, log: Path) -> Forked:
        """A process that is what `python -m dtj_trainer` with these arguments in this folder would be.

        Args:
            log: where its output is appended; its input is empty.
        """
        own = {name: value for name, value in environ.items() if name.startswith((*_READ_LATE, _PATH))}
        request = {
            "arguments": list(arguments),
            "environ": own,
            "folder": str(folder),
            "log": str(log),
            "places": self._appended(environ),
        }
        return Forked(self._ask({"fork": request}), lambda pid: self._ask({"reap": pid}))

    def stop(self) -> None:
        """Ends it, and all that it has forked."""
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait()

    def _appended(self, environ: Mapping[str, str]) -> list[str] | None:
        """The folders that follow the server's own in a PYTHONPATH; None if it does not begin with the server's."""
        ours, theirs = (found.get(_PATH, "").split(os.pathsep) for found in (self._environ, environ))
        return theirs[len(ours) :] if theirs[: len(ours)] == ours else None

    def _ask(self, request: Mapping[str, Any]) -> int:
        if self._channel is None:
            self._start()
        assert self._channel is not None
        assert self._process is not None
        try:
            self._channel.sendall(json.dumps(request).encode())
            answer = self._channel.recv(_LONGEST_REQUEST)
        except OSError:
            answer = b""
        if not answer:
            raise RuntimeError(f"the fork server has ended with {self._process.wait()}; what it said is on stderr")
        return int(answer)

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # A session of its own: Ctrl-C is for pytest, whose end is ours.
            self._process = subprocess.Popen(
                [sys.executable, __file__], env=self._environ, stdin=theirs.fileno(), start_new_session=True
            )


@contextmanager
def forking(environ: Mapping[str, str]) -> Iterator[None]:
    """Meanwhile, there is a server for this process."""
    global current
    current = server = ForkServer(environ)
    try:
        yield
    finally:
        current = None
        server.stop()


current: ForkServer | None = None
"""The one of this process. There is none outside of pytest: a bench measures whole starts."""


def _surroundings(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith((*_READ_LATE, _PATH))}


def serve() -> None:
    """Answers one request after the other on standard input, a socket, until nobody is left to ask."""
    child.preload(["dtj_trainer.preload"])
    channel = socket.socket(fileno=0)
    while request := channel.recv(_LONGEST_REQUEST):
        asked = json.loads(request)
        if "fork" in asked:
            answer = _fork(**asked["fork"])
        else:
            _, status = os.waitpid(asked["reap"], 0)
            answer = os.waitstatus_to_exitcode(status)
        channel.sendall(str(answer).encode())


def _fork(*, arguments: Sequence[str], environ: Mapping[str, str], folder: str, log: str, places: Sequence[str]) -> int:
    children: list[int] = []

    def become() -> NoReturn:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.chdir(folder)
        sys.path[0] = folder
        own = 1 + len(os.environ.get(_PATH, "").split(os.pathsep))
        sys.path[own:own] = places
        child.run_module(MODULE, arguments, environ)()

    with open(log, "ab") as file:
        child.fork(become, started=children.append, output=(file.fileno(), file.fileno()))
    return children[0]


if __name__ == "__main__":
    serve()
