"""Starts of Python programs that need not import everything again: a process that has imported it, and forks.

So the launcher starts a task again in its place, and its code does it here: the same imports before the fork, the same
steps after it. A server belongs to the process that made it, and ends with it in whatever way that ends; what it has
forked ends with the server. Linux alone.
"""

import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dtj_launch import child

_PATH = "PYTHONPATH"
_LONGEST_REQUEST = 2**17
_STREAMS = (0, 1, 2)


class Forked:
    """A process that a server has forked, with as much of `subprocess.Popen` as tests ask for."""

    def __init__(self, program: str, pid: int, reap: Callable[[int], int]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._program = program
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
            raise subprocess.TimeoutExpired(self._program, timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

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

    def __init__(self, program: str, imports: Sequence[str], environ: Mapping[str, str]) -> None:
        """Args:
        program: the module that is run, as by `python -m`.
        imports: what is imported before the fork: modules, or `package.*` for all below a package but the program.
        environ: what the server is started with. What Python and libraries read at their import comes from it.
        """
        self.program = program
        self.environ = dict(environ)
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._asking = threading.Lock()  # an answer belongs to the request before it

    def fork(
        self, arguments: Sequence[str], environ: Mapping[str, str], *, folder: Path, streams: tuple[int, int, int]
    ) -> Forked:
        """A process that is what `python -m` of the program with these arguments in this folder would be.

        Args:
            environ: all of its environment.
            streams: descriptors that become its standard input, output and error.
        """
        request = {"arguments": list(arguments), "environ": dict(environ), "folder": str(folder)}
        return Forked(self.program, self._ask({"fork": request}, streams), lambda pid: self._ask({"reap": pid}))

    def stop(self) -> None:
        """Ends it, and all that it has forked."""
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait()

    def _ask(self, request: Mapping[str, Any], descriptors: Iterable[int] = ()) -> int:
        with self._asking:
            return self._answer(request, descriptors)

    def _answer(self, request: Mapping[str, Any], descriptors: Iterable[int]) -> int:
        if self._channel is None:
            self._start()
        assert self._channel is not None
        assert self._process is not None
        try:
            socket.send_fds(self._channel, [json.dumps(request).encode()], list(descriptors))
            answer = self._channel.recv(_LONGEST_REQUEST)
        except OSError:
            answer = b""
        if not answer:
            raise RuntimeError(f"the fork server has ended with {self._process.wait()}; what it said is on stderr")
        return int(answer)

    def _start(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        launcher = Path(child.__file__).parents[1]
        path = os.pathsep.join(filter(None, (self.environ.get(_PATH), str(launcher))))
        with theirs:
            # A session of its own: Ctrl-C is for pytest, whose end is ours.
            self._process = subprocess.Popen(
                [sys.executable, __file__, self.program, *self._imports],
                env={**self.environ, _PATH: path},
                stdin=theirs.fileno(),
                start_new_session=True,
            )


def _modules(imports: Iterable[str], program: str) -> Iterator[str]:
    for name in imports:
        package = name.removesuffix(".*")
        if package == name:
            yield name
            continue
        places = importlib.import_module(package).__path__
        found = (each.name for each in pkgutil.walk_packages(places, f"{package}."))
        # Python warns of a module that is run though it has been imported.
        yield from (each for each in found if each != program and not each.endswith(".__main__"))


def _serve(program: str, imports: Sequence[str]) -> None:
    """Answers one request after the other on standard input, a socket, until nobody is left to ask."""
    given = dict(os.environ)
    child.preload(_modules(imports, program))
    assert threading.active_count() == 1, "a fork has one thread, whatever the others were about to do"
    channel = socket.socket(fileno=0)
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, _LONGEST_REQUEST, len(_STREAMS))
        if not request:
            return
        asked = json.loads(request)
        if "fork" in asked:
            answer = _fork(program, descriptors, given, **asked["fork"])
        else:
            _, status = os.waitpid(asked["reap"], 0)
            answer = os.waitstatus_to_exitcode(status)
        channel.sendall(str(answer).encode())


def _fork(
    program: str,
    streams: Sequence[int],
    given: Mapping[str, str],
    *,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    folder: str,
) -> int:
    children: list[int] = []

    def become() -> NoReturn:
        for stream, ours in zip(streams, _STREAMS, strict=True):
            os.dup2(stream, ours)
            os.close(stream)
        os.chdir(folder)
        before, after = (each.get(_PATH, "").split(os.pathsep) for each in (given, environ))
        rest = [place for place in sys.path[1:] if place not in before]
        sys.path[:] = dict.fromkeys([folder, *(place for place in after if place), *rest])
        for name in given.keys() - environ.keys():  # others are what the imports have set
            os.environ.pop(name, None)
        os.environ.update(environ)
        sys.argv = [program, *arguments]
        child.leave_as(lambda: runpy.run_module(program, run_name="__main__", alter_sys=True))

    child.fork(become, started=children.append)
    for descriptor in streams:
        os.close(descriptor)
    return children[0]


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])
