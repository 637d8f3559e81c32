"""Stands between the runner and one pod's process, as a container runtime's shim does. A script of its own, with
the standard library alone: ``shim.py COMMAND...``.

Why another process? So that nothing is left behind, however the runner ends. The shim's standard input is a pipe
from the runner: when that is cut, by ``kill -9`` as well as by intent, the pod's whole process group is killed. And
should the shim itself be killed, the kernel kills the command (Linux).

SIGTERM goes on to the whole group. When the command ends, what it left running is killed, as in a container, and
the shim ends with its exit code: 128 + number after a signal, as container runtimes say it.
"""

import ctypes
import os
import select
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def main(command: list[str]) -> int:
    """Run ``command`` until it ends or the runner cuts the line; its exit code."""
    # Before the fork, so that the child gets the same mask in any case and no signal falls between.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    parent = os.getpid()
    group = os.fork()
    if group == 0:
        _become(command, parent=parent)
    _make_group(group)
    signal.signal(signal.SIGTERM, lambda *_: _signal_group(group, signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner alone answers Ctrl-C
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
    status = _wait(group, wakeup)
    _signal_group(group, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def _become(command: list[str], *, parent: int) -> NoReturn:
    """In the child: a process group of its own, signals as in any new process, then the command itself."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(128 + signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        print(f"{command[0]}: command not found", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND)
    except OSError as error:
        print(f"{command[0]}: cannot be run: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_EXECUTABLE)


def _make_group(child: int) -> None:
    """As the child does too: whichever comes first, the group is there before a signal is sent to it."""
    try:
        os.setpgid(child, child)
    except PermissionError:
        return  # it runs the command already, so it has made the group


def _wait(child: int, wakeup: int) -> int:
    """The exit code of ``child``, negative for a signal; kills its group when standard input is cut."""
    inputs = [0, wakeup]
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        ready, _, _ = select.select(inputs, [], [])
        if wakeup in ready:
            os.read(wakeup, 64)
        if 0 in ready and not os.read(0, 1):
            inputs.remove(0)
            _signal_group(child, signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return  # all of it has ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
