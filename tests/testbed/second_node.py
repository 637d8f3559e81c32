"""A second real node beside that of a cluster, which a program can lose: it has a machine and a run of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed import runs
from testbed.cluster import Image
from testbed.errors import StartError
from testbed.machine import Machine
from testbed.node import Node
from testbed.node_cluster import NodeCluster
from testbed.processes import output


class SecondNode:
    """A node whose pods and those of the first one reach each other over a link of their own."""

    def __init__(self, cluster: NodeCluster, name: str, *, run: Path) -> None:
        self.name = name
        self._cluster = cluster
        self._machine = Machine(run)
        self._node = Node(self._machine, binaries=cluster.binaries, name=name)

    @classmethod
    @contextmanager
    def beside(cls, cluster: NodeCluster, name: str) -> Iterator["SecondNode"]:
        """A node that is ready. Afterwards the cluster knows nothing of it."""
        run = runs.create(f"{cluster.run.name}-{name}", owner=runs.owner_of(cluster.run))
        try:
            node = cls(cluster, name, run=run)
            node._start()
            yield node
        finally:
            runs.remove(run)
            cluster.kubectl("delete", "node", name, "--ignore-not-found")

    def load_image(self, image: Image) -> None:
        """Import an image. Raises `StartError` where it has no archive."""
        if image.archive is None:
            raise StartError(f"the image {image.name} has no archive to import")
        self._node.load_image(image.name, image.archive)

    @contextmanager
    def lost(self) -> Iterator[None]:
        """The node as if its power failed: all of it ends at once, and no connection is closed.

        While the block lasts, the network swallows what is sent to its pods. The node does not come back.
        """
        networks = self._cluster.machine.network, self._machine.network
        with self._cluster.machine.parted(*(str(network.pods) for network in networks)):
            output(*f"ip link set {self._machine.network.link} down".split())
            self._machine.process.kill()
            yield

    def _start(self) -> None:
        self._machine.start()
        self._link()
        self._node.start_containerd()
        self._cluster.join(self._node)
        self._cluster.await_node(self._node)

    def _link(self) -> None:
        """Join both machines: the real one forwards nothing between them."""
        first, second, link = self._cluster.machine, self._machine, self.name
        output(*f"ip link add {link} netns {first.pid} type veth peer name {link} netns {second.pid}".split())
        for here, there in ((first, second.network), (second, first.network)):
            here.run(
                *("ip", "-batch", "-"),
                stdin=f"""
                    link set {link} up
                    route add {there.inside} dev {link}
                    route add {there.pods} via {there.inside} dev {link}
                """,
            )
