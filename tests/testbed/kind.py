"""A cluster that the testbed did not make: kind's, in Docker.

Used as its users would use it, by kind and kubectl. A run's directory holds what is needed besides: a kubeconfig of the
tests' own, and the processes that end with the run.
"""

import shutil
from functools import cached_property
from pathlib import Path
from typing import Self

from loopback import free_ports
from testbed import binaries, runs
from testbed.cluster import Cluster, Image
from testbed.fake_nodes import FakeNodes
from testbed.images import docker_works
from testbed.processes import Process, output, wait_until
from testbed.rest import RestClient


class KindCluster(Cluster):
    """A cluster made by kind, in Docker, for this run, with the fake nodes; it is reached through `kubectl proxy`."""

    NAME = "dtj-tests"

    def __init__(self, run: Path) -> None:
        self.run = run
        self._proxy = Process("kubectl-proxy", run=run)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run / "kubeconfig"

    @cached_property
    def kubectl_path(self) -> Path:
        """kubectl on PATH, or else the testbed's."""
        found = shutil.which("kubectl")
        return Path(found) if found else binaries.ensure(("kubectl",))["kubectl"]

    @cached_property
    def api(self) -> RestClient:
        """The API server, as the administrator."""
        return RestClient(int((self.run / "proxy-port").read_text()), tls=None)

    @classmethod
    def launch(cls, name: str, *, owner: int) -> Self:
        """Make the cluster ready for use in a new run called `name`; it ends with `owner`, or at `stop`."""
        cluster = cls(runs.create(name, owner=owner))
        try:
            cluster._create()
            [port] = free_ports(1)
            (cluster.run / "proxy-port").write_text(str(port))
            command = [str(cluster.kubectl_path), "proxy", f"--kubeconfig={cluster.kubeconfig}", f"--port={port}"]
            cluster._proxy.start(command, owner=owner)
            cluster._proxy.await_ready(cluster._answers)
            FakeNodes(cluster, run=cluster.run, kwok=binaries.ensure(("kwok",))["kwok"]).start()
            wait_until(cluster.nodes_are_ready, what="all nodes to be ready")
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def _create(self) -> None:
        """`kind create cluster`, after deleting what a crashed run left."""
        output("kind", "delete", "cluster", f"--name={self.NAME}")
        output("kind", "create", "cluster", f"--name={self.NAME}", f"--kubeconfig={self.kubeconfig}", "--wait=180s")

    def load_image(self, image: Image) -> None:
        """`kind load docker-image`."""
        output("kind", "load", "docker-image", image.name, f"--name={self.NAME}")

    def stop(self) -> None:
        """`kind delete cluster`."""
        output("kind", "delete", "cluster", f"--name={self.NAME}")
        runs.remove(self.run)

    def _answers(self) -> bool:
        try:
            return self.api.text("GET", "/readyz") == "ok"
        except OSError:
            return False


def kind_works() -> bool:
    """Whether kind can make a cluster here."""
    return shutil.which("kind") is not None and docker_works()
