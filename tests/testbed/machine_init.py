"""The first process of a machine: `machine_init.py DIRECTORY`, a script of its own with the standard library alone.

It makes process, mount and network namespaces of its own and stays in them to bury orphans. Whatever else
runs in the machine (containerd, its containers, the kubelet) lives in these namespaces, and the kernel ends all of it,
mounts and interfaces and iptables rules included, when this process ends. It writes its process id, as the world
outside knows it, to DIRECTORY/pid once all is mounted.

To the programs in it, the machine is a fresh one: /run, /var/lib and /var/log are empty, and kernel settings that a
kubelet would change for the whole real machine seem to be as it wants them.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x0002_0000, 0x2000_0000, 0x4000_0000

# What the kubelet insists on and would write (pkg/kubelet/cm, setupKernelTunables).
KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


def main(directory: Path) -> int:
    """Run the machine until its first process is killed, or this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    unshare(libc, CLONE_NEWPID)
    ready, tell = os.pipe()
    first = os.fork()
    if first == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        unshare(libc, CLONE_NEWNS | CLONE_NEWNET)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        mount_all(directory)
        os.write(tell, b"!")
        bury_orphans()
    os.close(tell)
    if os.read(ready, 1):
        started = Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[19]
        pending = directory / "pid.pending"
        pending.write_text(f"{first} {started}")
        pending.replace(directory / "pid")
    return os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])


def unshare(libc: ctypes.CDLL, namespaces: int) -> None:
    """Leave namespaces for new ones. A new process namespace is for children born later."""
    if libc.unshare(namespaces) != 0:
        raise OSError(ctypes.get_errno(), "cannot make namespaces")


def mount_all(directory: Path) -> None:
    """Give the machine its own /proc, empty places to write to, and settings of its own."""
    mount("--make-rprivate", "/")
    mount("--types", "proc", "proc", "/proc")
    for place in ("lib", "log"):
        own = directory / place
        own.mkdir()
        mount("--bind", str(own), f"/var/{place}")
    for name, value in KERNEL_SETTINGS.items():
        own = directory / name.replace("/", ".")
        own.write_text(f"{value}\n")
        mount("--bind", str(own), f"/proc/sys/{name}")
    mount("--types", "tmpfs", "tmpfs", "/run")


def mount(*arguments: str) -> None:
    """mount(8). It says on stderr what is wrong, and so does the exception."""
    subprocess.run(["mount", *arguments], check=True)


def bury_orphans() -> None:
    """Wait for whatever ends, forever: the duty of a first process."""
    while True:
        signal.sigwait({signal.SIGCHLD})
        while any_ended():
            pass


def any_ended() -> bool:
    """Take notice of the end of one child, if one has ended."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
