"""Runs one command under a supervisor: when its owner dies, by whatever cause, so does the command.

A script of its own, with the standard library alone: `supervise.py OWNER MACHINE COMMAND...`. OWNER is a process id,
or 0 for none; MACHINE is that of the first process of a machine (see `machine`) that the command shall run in, or 0.
Why not let the kernel tie the command to its parent? Because the parent is a pytest worker that may end long before
the run does, and because that tie is to the parent's thread. So the supervisor watches the owner, and the kernel ties
the command to the supervisor, should that be killed. SIGTERM to the supervisor kills the command.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys

PR_SET_PDEATHSIG = 1
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x0002_0000, 0x2000_0000, 0x4000_0000


def main(owner: int, machine: int, command: list[str]) -> int:
    """Run `command` until it ends, its owner ends or SIGTERM comes; return its exit status."""
    terminated, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        ends = [os.pidfd_open(owner)] if owner else []
    except ProcessLookupError:
        return 1
    libc, parent = ctypes.CDLL(None, use_errno=True), os.getpid()
    if machine:
        door = os.pidfd_open(machine)
        _enter(libc, door, CLONE_NEWPID)
        # What is outside of one's process namespace has the id 0.
        parent = 0

    def tie() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        if machine:
            _enter(libc, door, CLONE_NEWNS | CLONE_NEWNET)

    child = subprocess.Popen(command, preexec_fn=tie)
    ends += [os.pidfd_open(child.pid), terminated.fileno()]
    select.select(ends, [], [])
    # Killed here and waited for, a command has closed its ports once the supervisor is gone; tests restart it at once.
    child.kill()
    return child.wait()


def _enter(libc: ctypes.CDLL, machine: int, namespaces: int) -> None:
    """Enter namespaces of the process behind a pidfd. A process namespace takes in only children born later."""
    if libc.setns(machine, namespaces) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter the machine's namespaces")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
