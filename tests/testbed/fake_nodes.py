"""Nodes with accelerators that exist in the API alone: KWOK keeps them ready and their pods running.

They carry the labels, resources and taints that the providers' own nodes carry, so what is tested is where the real
scheduler puts a pod, not what runs there. Every one is tainted, as GKE does with its own: a pod that did not ask for an
accelerator belongs on the real node.

Sources: Google Cloud, "Run GPUs in GKE Standard node pools" and "Plan TPUs in GKE".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed import runs
from testbed.cluster import Cluster
from testbed.processes import Process
from testbed.rest import Json

GPU, TPU = "nvidia.com/gpu", "google.com/tpu"
CIDR = "198.18.0.1/16"


@dataclass(frozen=True, kw_only=True)
class FakeNode:
    """One node: what sets it apart. `devices` is how many of `resource` it has."""

    name: str
    resource: str
    devices: int
    labels: Mapping[str, str]

    @property
    def manifest(self) -> Json:
        """The Node object."""
        amounts = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "200Gi", "pods": "110"}
        capacity = amounts | {self.resource: str(self.devices)}
        common = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        return {
            "metadata": {
                "name": self.name,
                "labels": {**common, **self.labels},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"taints": [{"key": self.resource, "value": "present", "effect": "NoSchedule"}]},
            "status": {"capacity": capacity, "allocatable": capacity},
        }


def _gpu(name: str) -> FakeNode:
    labels = {
        "cloud.google.com/gke-accelerator": "nvidia-l4",
        "cloud.google.com/gke-accelerator-count": "1",
        "node.kubernetes.io/instance-type": "g2-standard-32",
    }
    return FakeNode(name=name, resource=GPU, devices=1, labels=labels)


def _tpu(name: str, *, slice_of: str, devices: int) -> FakeNode:
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
        "cloud.google.com/gke-nodepool": slice_of,
        "node.kubernetes.io/instance-type": f"ct5lp-hightpu-{devices}t",
    }
    return FakeNode(name=name, resource=TPU, devices=devices, labels=labels)


FAKE_NODES = (
    *(_gpu(f"gke-l4-{index}") for index in range(2)),
    # The topology 2x4 comes as one host of eight chips and as two of four.
    _tpu("gke-tpu-2x4-one-host", slice_of="v5e-2x4-a", devices=8),
    *(_tpu(f"gke-tpu-2x4-{host}", slice_of="v5e-2x4-b", devices=4) for host in range(2)),
)


class FakeNodes:
    """The fake nodes of one cluster, and the KWOK that looks after them. Its state is in the run's directory."""

    def __init__(self, cluster: Cluster, *, run: Path, kwok: Path) -> None:
        self.process = Process("kwok", run=run)
        self._cluster = cluster
        self._run = run
        self._kwok = kwok

    def start(self) -> None:
        """Make the nodes and start KWOK; do not wait."""
        for fake in FAKE_NODES:
            self._cluster.api.request("POST", "/api/v1/nodes", fake.manifest)
        config = self._run / "kwok.json"
        config.write_text(json.dumps(self._config()))
        command = [str(self._kwok), f"--config={config}", f"--kubeconfig={self._cluster.kubeconfig}"]
        self.process.start(command, owner=runs.owner_of(self._run))

    def _config(self) -> Json:
        """KWOK looks after the nodes with its annotation and leaves the others alone."""
        return {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": {
                "manageAllNodes": False,
                "manageNodesWithAnnotationSelector": "kwok.x-k8s.io/node=fake",
                "cidr": CIDR,
                "nodeLeaseDurationSeconds": 40,
            },
        }
