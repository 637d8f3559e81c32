"""A real Kubernetes node in a machine of its own: containerd, kubelet, kube-proxy and CoreDNS as plain processes.

Pods run in containers, reach each other on a bridge, find each other by cluster DNS and reach Services through
iptables, as on any node. They cannot reach the outside world, so images are imported, never pulled.
"""

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path

from testbed import cgroups, runs, tiny_image
from testbed.machine import BRIDGE, Machine
from testbed.processes import Process

NAME = "node1"
SOCKET = "/run/containerd/containerd.sock"
CLUSTER_DOMAIN = "cluster.local"
DNS_READY_PORT = 8181
CNI_PLUGINS = "/usr/lib/cni"

Json = dict[str, object]


class Node:
    """The node of one run, in its machine."""

    def __init__(self, machine: Machine, *, binaries: Mapping[str, Path], name: str = NAME) -> None:
        self.name = name
        self._machine = machine
        self._run = machine.run_directory
        self._binaries = binaries
        self._containerd = Process("containerd", run=self._run)
        self._kubelet = Process("kubelet", run=self._run)
        self._proxy = Process("kube-proxy", run=self._run)
        self._dns = Process("coredns", run=self._run)

    @property
    def processes(self) -> tuple[Process, ...]:
        """Its processes, in the order in which they start."""
        return (self._containerd, self._kubelet, self._proxy, self._dns)

    def start_containerd(self) -> None:
        """Start containerd and return when it serves. It needs no API server."""
        self._write("containerd.toml", self._containerd_config())
        self._write("cni.conflist", json.dumps(self._cni_config()))
        self._start(self._containerd, "containerd", f"--config={self._run / 'node' / 'containerd.toml'}")
        self._containerd.await_ready(Path(f"/proc/{self._machine.pid}/root{SOCKET}").exists)
        self.load_image(tiny_image.NAME, tiny_image.write(self._run / "node" / "tiny.tar"))

    def start(self, *, kubeconfigs: Mapping[str, Path], authority: Path) -> None:
        """Start what speaks to the API server, each with its kubeconfig; do not wait."""
        kubelet = self._write("kubelet.json", json.dumps(self._kubelet_config(authority)))
        proxy = self._write("kube-proxy.json", json.dumps(self._proxy_config(kubeconfigs["kube-proxy"])))
        corefile = self._write("Corefile", self._corefile(kubeconfigs["coredns"]))
        self._start(
            self._kubelet,
            str(self._binaries["kubelet"]),
            f"--config={kubelet}",
            f"--kubeconfig={kubeconfigs['kubelet']}",
            f"--hostname-override={self.name}",
            f"--node-ip={self._machine.network.inside}",
        )
        self._start(self._proxy, str(self._binaries["kube-proxy"]), f"--config={proxy}")
        self._start(self._dns, str(self._binaries["coredns"]), f"-conf={corefile}")

    def dns_answers(self) -> bool:
        """Whether CoreDNS has read the cluster's Services and answers."""
        connection = HTTPConnection(str(self._machine.network.bridge), DNS_READY_PORT, timeout=5)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def load_image(self, name: str, archive: Path) -> None:
        """Import the image `name` from an archive (docker or OCI), unless the node has it."""
        if not self._ctr("images", "list", "--quiet", f"name=={name}"):
            self._ctr("images", "import", str(archive))

    def import_image(self, archive: Path, repository: str) -> None:
        """Import an OCI archive, so that pods can name its image by tag and by digest, as of this repository."""
        self._ctr("images", "import", "--digests", f"--base-name={repository}", str(archive))

    def tag_image(self, name: str, other: str) -> None:
        """Let pods name the image `name` by another name, too."""
        self._ctr("images", "tag", "--force", name, other)

    def _ctr(self, *arguments: str) -> str:
        return self._machine.run("ctr", f"--address={SOCKET}", "--namespace=k8s.io", *arguments)

    def _start(self, process: Process, *command: str) -> None:
        process.start(list(command), owner=runs.owner_of(self._run), machine=self._machine.pid)

    def _write(self, name: str, text: str) -> Path:
        path = self._run / "node" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    # -- how it is configured -------------------------------------------------------------------------------------

    def _containerd_config(self) -> str:
        """Its own root and state are the default ones: the machine has them to itself.

        Without restrict_oom_score_adj no sandbox starts where root lacks CAP_SYS_RESOURCE ("can't get final child's
        PID from pipe: EOF").
        """
        return f"""
            version = 2
            disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs"]
            [plugins."io.containerd.grpc.v1.cri"]
            restrict_oom_score_adj = true
            sandbox_image = "{tiny_image.NAME}"
            [plugins."io.containerd.grpc.v1.cri".cni]
            bin_dir = "{CNI_PLUGINS}"
            conf_dir = "{self._run / "node"}"
        """

    def _cni_config(self) -> Json:
        ranges = [[{"subnet": str(self._machine.network.pods), "gateway": str(self._machine.network.bridge)}]]
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
        }
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "0.4.0", "name": "dtj-testbed", "plugins": [bridge, portmap]}

    def _kubelet_config(self, authority: Path) -> Json:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(authority)}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "clusterDNS": [str(self._machine.network.bridge)],
            "clusterDomain": CLUSTER_DOMAIN,
            # No search domains and no servers of this machine: they cannot be reached.
            "resolvConf": str(self._write("resolv.conf", "")),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroups.name_of(self._run)}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "oomScoreAdj": 0,
            # What else fills this machine's disk is no reason to delete images or to evict pods.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        }

    def _proxy_config(self, kubeconfig: Path) -> Json:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "hostnameOverride": self.name,
            "mode": "iptables",
            "clusterCIDR": str(self._machine.network.pods),
            # The size of the kernel's connection table is not the machine's to change.
            "conntrack": {"maxPerCore": 0},
        }

    def _corefile(self, kubeconfig: Path) -> str:
        """kubeadm's, which caches no name of the cluster; other names do not exist."""
        bridge = self._machine.network.bridge
        return f"""
            {CLUSTER_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
                bind {bridge}
                errors
                ready {bridge}:{DNS_READY_PORT}
                kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
                    kubeconfig {kubeconfig}
                    pods insecure
                    ttl 30
                }}
                loadbalance
            }}
            .:53 {{
                bind {bridge}
                template ANY ANY . {{
                    rcode NXDOMAIN
                }}
            }}
        """
