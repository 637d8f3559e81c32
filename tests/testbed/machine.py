"""A machine within this one: namespaces of its own, in which a node runs as if it had the whole of it. Needs root.

Mounts, interfaces, routes, iptables rules and kernel settings that anything in it makes are the machine's own, and end
with it. A link joins it to this machine; nothing leads further, so what runs in it cannot reach the outside world.
What the kernel keeps outside of namespaces, control groups, lies under one group named after the run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from testbed import cgroups, machine_init, processes, runs
from testbed.errors import StartError
from testbed.network import Network
from testbed.processes import Process, output

BRIDGE = "cni0"


class Machine:
    """The machine of one run. Any process may hold an instance: all state is in the run's directory."""

    def __init__(self, run: Path) -> None:
        self.run_directory = run
        self.directory = run / "machine"
        self.process = Process("machine", run=run)

    @property
    def pid(self) -> int:
        """The process id of its first process. Raises `StartError` where the machine does not run."""
        file = self.directory / "pid"
        pid = processes.find(file.read_text()) if file.exists() else None
        if pid is None:
            raise StartError(f"the machine of {self.run_directory.name} does not run")
        return pid

    @cached_property
    def network(self) -> Network:
        """Its addresses, chosen at the start."""
        found = Network.of(self.run_directory)
        if found is None:
            raise StartError(f"no link was laid to the machine of {self.run_directory.name}")
        return found

    def start(self) -> None:
        """Make the namespaces, the link and the control group."""
        self.directory.mkdir()
        init = [processes.PYTHON, "-I", machine_init.__file__, str(self.directory)]
        self.process.start(init, owner=runs.owner_of(self.run_directory))
        self.process.await_ready((self.directory / "pid").exists)
        cgroups.create(self.run_directory)
        self._address(Network.lay(self.run_directory, machine=self.pid))

    def run(self, *command: str, stdin: str | None = None) -> str:
        """What `command` writes when run in the machine. Raises `StartError` where it fails, with what it says."""
        return output("nsenter", f"--target={self.pid}", "--mount", "--net", "--pid", "--", *command, stdin=stdin)

    @contextmanager
    def parted(self, one: str, other: str) -> Iterator[None]:
        """A network that swallows, while the block lasts, whatever goes from either pod's address to the other's."""
        rules = [["FORWARD", "-s", a, "-d", b, "-j", "DROP"] for a, b in ((one, other), (other, one))]
        for rule in rules:
            self.run("iptables", "-w", "-I", *rule)
        try:
            yield
        finally:
            for rule in rules:
                self.run("iptables", "-w", "-D", *rule)

    def _address(self, network: Network) -> None:
        output(
            *("ip", "-batch", "-"),
            stdin=f"""
                address add {network.outside}/24 dev {network.link}
                link set {network.link} up
                route add {network.pods} via {network.inside} dev {network.link} onlink
            """,
        )
        self.run(
            *("ip", "-batch", "-"),
            stdin=f"""
                link set lo up
                address add {network.inside}/24 dev eth0
                link set eth0 up
                route add default via {network.outside}
                link add {BRIDGE} type bridge
                address add {network.bridge}/{network.pods.prefixlen} dev {BRIDGE}
                link set {BRIDGE} up
            """,
        )
        self.run("sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")
