"""The link between this machine and one of the testbed's within it, and the addresses on both sides.

The link's name is the claim on a number and with it on addresses: only one interface of that name can be.
"""

import json
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Self

from testbed.errors import StartError
from testbed.processes import output

PODS = IPv4Network("10.244.0.0/16")
LINKS = IPv4Network("10.245.0.0/16")
INTERFACES = Path("/sys/class/net")


@dataclass(frozen=True)
class Network:
    """The link and the addresses of one machine: by its number, so that several may stand side by side."""

    number: int
    interface: int

    @property
    def link(self) -> str:
        """The name of the interface that leads to the machine. Inside, it is eth0."""
        return _name(self.number)

    @property
    def outside(self) -> IPv4Address:
        """This end of the link, where the API server listens."""
        return LINKS[256 * self.number + 1]

    @property
    def inside(self) -> IPv4Address:
        """The machine's end of the link, the address of its node."""
        return LINKS[256 * self.number + 2]

    @property
    def pods(self) -> IPv4Network:
        """The addresses of its pods."""
        return list(PODS.subnets(new_prefix=24))[self.number]

    @property
    def bridge(self) -> IPv4Address:
        """The machine's address among its pods, where CoreDNS listens."""
        return self.pods[1]

    @classmethod
    def lay(cls, run: Path, *, machine: int) -> Self:
        """Lay a link to the machine whose first process is `machine`, and note it in the run's directory."""
        for number in range(256):
            link = _name(number)
            if _interface(link) is None:
                try:
                    output(*f"ip link add {link} type veth peer name eth0 netns {machine}".split())
                except StartError:
                    if _interface(link) is None:
                        raise
                    continue
                network = cls(number, _interface(link) or 0)
                pending = _note(run).with_suffix(".pending")
                pending.write_text(json.dumps(asdict(network)))
                pending.replace(_note(run))
                return network
        raise StartError("256 machines stand on this one already")

    @classmethod
    def of(cls, run: Path) -> Self | None:
        """The network of a run, None if no link was laid."""
        note = _note(run)
        return cls(**json.loads(note.read_text())) if note.exists() else None

    def remove(self) -> None:
        """Remove the link, and with it the route. The kernel would do so too, some time after the machine's end."""
        if _interface(self.link) == self.interface:
            try:
                output(*f"ip link delete {self.link}".split())
            except StartError:
                if _interface(self.link) == self.interface:
                    raise


def _name(number: int) -> str:
    return f"dtj{number}"


def _note(run: Path) -> Path:
    return run / "machine" / "network.json"


def _interface(link: str) -> int | None:
    """The number that no other interface has had since the machine's start; None where there is no such link."""
    try:
        return int((INTERFACES / link / "ifindex").read_text())
    except OSError:
        return None
