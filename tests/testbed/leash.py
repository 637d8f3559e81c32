"""Runs one command on a leash: when its owner dies, by whatever cause, so does the command.

A script of its own, with the standard library alone: `leash.py OWNER COMMAND...`, where OWNER is a process id, or 0 for
none. Why not let the kernel tie the command to its parent? Because the parent is a pytest worker that may end long
before the run does, and because that tie is to the parent's thread. So the leash watches the owner, and the kernel
ties the command to the leash, should that be killed. SIGTERM to the leash kills the command.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def main(owner: int, command: list[str]) -> int:
    """Run `command` until it ends, its owner ends or SIGTERM comes; return its exit status."""
    terminated, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        ends = [os.pidfd_open(owner)] if owner else []
    except ProcessLookupError:
        return 1
    libc, parent = ctypes.CDLL(None), os.getpid()

    def tie() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    child = subprocess.Popen(command, preexec_fn=tie)
    ends += [os.pidfd_open(child.pid), terminated.fileno()]
    select.select(ends, [], [])
    # Killed here and waited for, a command has closed its ports once the leash is gone; tests restart it at once.
    child.kill()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
