"""A control plane with a real node, in a machine of its own, and fake nodes with accelerators. Needs root."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from testbed.cluster import Image
from testbed.control_plane import ControlPlane
from testbed.errors import StartError
from testbed.fake_nodes import FakeNodes
from testbed.machine import Machine
from testbed.node import Node
from testbed.processes import Process, wait_until

DNS_USER = "system:coredns"
DNS_READS = [
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]


VOLUMES = 24
VOLUME_SIZE = "10Gi"


class NodeCluster(ControlPlane):
    """One cluster with nodes in a run's directory. Any process may hold an instance."""

    controllers = "*"

    def __init__(self, run: Path, *, binaries: Mapping[str, Path]) -> None:
        super().__init__(run, binaries=binaries)
        self.machine = Machine(run)
        self._node = Node(self.machine, binaries=binaries)
        self._fake_nodes = FakeNodes(self, run=run, kwok=binaries["kwok"])

    @property
    def processes(self) -> tuple[Process, ...]:
        """Its processes, in the order in which they start."""
        return (self.machine.process, *super().processes, *self._node.processes, self._fake_nodes.process)

    @cached_property
    def address(self) -> str:
        """This end of the link to the machine: the API server is reached from here and from pods, by nobody else."""
        return str(self.machine.network.outside)

    def start(self) -> None:
        """Start all processes; return when all nodes are ready and cluster DNS answers."""
        self.machine.start()
        self._node.start_containerd()
        super().start()
        self.grant(DNS_USER, DNS_READS)
        self.join(self._node)
        self._fake_nodes.start()
        self._make_volumes()
        self.await_node(self._node)

    def join(self, node: Node) -> None:
        """Start what of a node speaks to the API server; do not wait."""
        users = {
            "kubelet": self.kubeconfig_for(f"system:node:{node.name}", groups=("system:nodes",)),
            "kube-proxy": self.kubeconfig_for("system:kube-proxy"),
            "coredns": self.kubeconfig_for(DNS_USER),
        }
        node.start(kubeconfigs=users, authority=self._authority.root.certificate)

    def await_node(self, node: Node) -> None:
        """Return when a node has joined, all nodes are ready and its DNS answers."""
        wait_until(lambda: self._has_joined(node.name), what=f"{node.name} to join the cluster")
        wait_until(self.nodes_are_ready, what="all nodes to be ready")
        wait_until(node.dns_answers, what="cluster DNS")

    def running(self) -> bool:
        """Whether all processes run, the API server is ready and all nodes are."""
        return super().running() and self.nodes_are_ready()

    def load_image(self, image: Image) -> None:
        """Import an image into the real node. Raises `StartError` where it is no archive that containerd takes."""
        if image.archive is None:
            raise StartError(f"the image {image.name} has no archive to import")
        self._node.load_image(image.name, image.archive)

    def import_image(self, archive: Path, repository: str) -> None:
        """Import an OCI archive into the real node, under a repository, with its tag and its digest."""
        self._node.import_image(archive, repository)

    def tag_image(self, image: Image, name: str) -> None:
        """Give an image of the real node a second name."""
        self._node.tag_image(image.name, name)

    def _has_joined(self, name: str) -> bool:
        return name in [found["metadata"]["name"] for found in self.api.request("GET", "/api/v1/nodes")["items"]]

    def _make_volumes(self) -> None:
        """A default storage class, and volumes for it: directories of the node that any user may write to.

        Nothing is provisioned and nothing reclaimed: each is used once.
        """
        storage_class = "testbed"
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        self.api.request(
            "POST",
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {"name": storage_class, "annotations": default},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        )
        paths = [f"/var/lib/testbed-volumes/{index}" for index in range(VOLUMES)]
        self.machine.run("mkdir", "-p", *paths)
        self.machine.run("chmod", "0777", *paths)
        for index, path in enumerate(paths):
            spec = {
                "storageClassName": storage_class,
                "capacity": {"storage": VOLUME_SIZE},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "hostPath": {"path": path, "type": "Directory"},
            }
            name = f"testbed-{index}"
            self.api.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
