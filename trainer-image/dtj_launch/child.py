"""Starting the program: as a process of its own, or forked from what is imported already. Linux for the most part.

It gets a process group of its own, dies with the launcher, and begins with signals as in any new process.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import importlib
import json
import logging
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from .errors import NOT_EXECUTABLE, NOT_FOUND
from .output import flush

log = logging.getLogger(__name__)

_INJECTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "injected")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ROUNDS = 100
"""How often what a program left is looked for; each takes 10 ms. One that the kernel holds may not end at all."""

_MASKED = frozenset(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}


def adopt_orphans() -> None:
    """Makes processes whose parent has ended ours, as process 1 has them anyway."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def preload(modules: Iterable[str]) -> None:
    """Imports what every child that runs a module right here would import."""
    # Almost all that is imported stays, and the collector would look through it again and again: a sixth of the time.
    gc.disable()
    try:
        for name in modules:
            importlib.import_module(name)
    finally:
        gc.enable()
    # What is shared with the children stays shared: the collector writes to whatever it looks at.
    gc.collect()
    gc.freeze()


def run_command(command: Sequence[str], environ: Mapping[str, str]) -> Callable[[], NoReturn]:
    """Returns what a child does that runs a program. Its Python, where it is one, prints its stacks on SIGQUIT."""
    paths = [_INJECTED, *filter(None, [environ.get("PYTHONPATH")])]
    environ = {**environ, "PYTHONPATH": os.pathsep.join(paths)}
    program = command[0].partition("=")[0]  # of a variable that stands in its place, not the value: it may be a secret

    def run() -> NoReturn:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and no program expects to be ignored
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvpe(command[0], list(command), dict(environ))
        except FileNotFoundError:
            log.error(f"{program}: command not found")
            os._exit(NOT_FOUND)
        except OSError as error:
            log.error(f"{program}: cannot be run: {error.strerror}")
            os._exit(NOT_EXECUTABLE)

    return run


def run_module(module: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Callable[[], NoReturn]:
    """Returns what a child does that runs a module right here, with all that is imported already."""

    def run() -> NoReturn:
        os.environ.update(environ)
        faulthandler.register(signal.SIGQUIT, all_threads=True)
        sys.argv = [module, *arguments]
        leave_as(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True))

    return run


def run_check(module: str, function: str, arguments: Sequence[str], answer: int) -> Callable[[], NoReturn]:
    """Returns what a child does that calls a function with the arguments, and writes what it returns to a pipe."""

    def run() -> NoReturn:
        def call() -> None:
            __import__(module)
            os.write(answer, json.dumps(getattr(sys.modules[module], function)(list(arguments))).encode())

        sys.argv = [module, *arguments]
        leave_as(call)

    return run


def fork(
    target: Callable[[], NoReturn],
    *,
    started: Callable[[int], object],
    close: Iterable[int] = (),
) -> None:
    """Starts a child, which calls `target`.

    `started` gets its process id, also that of its process group, before any signal is handled.

    Args:
        close: descriptors that are the launcher's alone.
    """
    parent = os.getpid()
    flush()
    with _no_signals():
        child = os.fork()
        if child == 0:
            try:
                _settle(parent, close)
                target()
            except BaseException:  # noqa: BLE001  # a child of ours must not go on as the launcher
                traceback.print_exc()
            finally:
                os._exit(NOT_EXECUTABLE)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(child, child)  # as the child does: whichever comes first
        started(child)


def _settle(parent: int, close: Iterable[int]) -> None:
    os.setpgid(0, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)  # the launcher died before that was set
    signal.set_wakeup_fd(-1)
    for number in _MASKED:
        if callable(signal.getsignal(number)):  # the relay's; what Python ignores, Python code relies on
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if os.isatty(0):
        # Outside the terminal's foreground group, reading from it would stop the program.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor in close:
        os.close(descriptor)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def leave_as(call: Callable[[], object]) -> NoReturn:
    """Calls, and leaves as a Python of its own would: this one is the launcher's, and must not unwind its stack."""
    code = 0
    try:
        call()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if code and not isinstance(left.code, int):  # a text, or the error itself
            print(left.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001  # as Python's own top level does
        traceback.print_exc()
        code = 1
    # As at the end of Python, and of the children of multiprocessing: it ends idle thread pools, and waits for threads.
    threading._shutdown()  # type: ignore[attr-defined]
    with suppress(Exception):
        atexit._run_exitfuncs()
    flush()
    os._exit(code & 0xFF)


def signal_group(group: int, number: int) -> None:
    """Sends a signal to all processes of a group that still live."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def print_stacks(group: int) -> bool:
    """Has those processes of a group print their stacks that listen for it; whether there was one.

    To any other, SIGQUIT is the end.
    """
    listening = [pid for pid in _processes() if _catches(pid, group, signal.SIGQUIT)]
    for pid in listening:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)
    return bool(listening)


def children_in(group: int) -> list[int]:
    """Our own children in a process group, which those of a process that has ended become."""
    return [pid for pid in _processes() if _stat(pid)[1:3] == [str(os.getpid()), str(group)]]


def kill_children() -> None:
    """Ends what the program left running, in whichever process group or session, and what that has started.

    The children of a process that ends become ours, so it looks again until none lives, or one cannot be ended.
    """
    for _ in range(_ROUNDS):
        left = _descendants()
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _descendants() -> list[int]:
    """Processes that live and whose parents, or parents of these, we are."""
    fields = {pid: _stat(pid) for pid in _processes()}
    parents = {pid: int(stat[1]) for pid, stat in fields.items() if len(stat) > 2}
    found, generation = [], [os.getpid()]
    while generation:
        generation = [pid for pid, parent in parents.items() if parent in generation]
        found += generation
    return [pid for pid in found if fields[pid][0] not in "ZX"]


def _catches(pid: int, group: int, number: int) -> bool:
    fields = _stat(pid)
    if len(fields) < 3 or int(fields[2]) != group:
        return False
    with suppress(OSError), open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _stat(pid: int) -> list[str]:
    """State, parent, process group and more; empty where the process has ended. See proc(5)."""
    with suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()
    return []


def _processes() -> Iterable[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return []


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


@contextmanager
def _no_signals() -> Iterator[None]:
    """Between a fork and what follows from it, no signal is handled: it would miss the child, or be the child's."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _MASKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
