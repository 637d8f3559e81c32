"""What differs between the minor versions of Kubernetes that the testbed starts: programs, gates and served APIs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed import binaries

_SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, kw_only=True)
class Version:
    """One minor version. `gangs` is the version of `scheduling.k8s.io` that has gangs; empty if none has.

    `gates` are set on all three servers.
    """

    minor: str
    gangs: str = ""
    gates: tuple[str, ...] = ()

    @property
    def runtime_config(self) -> str:
        """What the API server serves in addition to its defaults."""
        return f"scheduling.k8s.io/{self.gangs}=true" if self.gangs else ""

    @property
    def feature_gates(self) -> str:
        """The value of `--feature-gates`."""
        return ",".join(f"{gate}=true" for gate in self.gates)

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of its programs in the testbed."""
        if self is USUAL:
            return binaries.CONTROL_PLANE
        own = {name: binaries.of_version(name, self.minor) for name in _SERVERS}
        return ("etcd", "kubectl", *(name for name in own.values() if name in binaries.PROGRAMS))

    def paths(self) -> Mapping[str, Path]:
        """The programs that a control plane of this version starts; without a scheduler if none is built."""
        return {name.removesuffix(f"-{self.minor}"): path for name, path in binaries.ensure(self.programs).items()}


USUAL = Version(minor="1.35")
"""The version of the tests that name none."""

VERSIONS: Mapping[str, Version] = {
    version.minor: version
    for version in (
        Version(minor="1.30"),
        Version(minor="1.32"),
        Version(minor="1.34"),
        USUAL,
        Version(minor="1.36"),
        Version(minor="1.37", gangs="v1beta1", gates=("GenericWorkload",)),
    )
}


def version_of(apiserver: Path) -> Version:
    """The version whose API server this is."""
    return VERSIONS.get(apiserver.name.removeprefix("kube-apiserver-"), USUAL)
