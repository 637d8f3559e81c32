"""The testbed's cluster with nodes keeps its own promises: the other `e2e` tests lean on every one of them."""

import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from patience import PATIENCE_SECONDS
from testbed import Cluster, NodeCluster, cgroups, runs, tiny_image
from testbed.fake_nodes import FakeNode
from testbed.network import Network
from testbed.node import NAME
from testbed.processes import PROC, output, stat, wait_until
from testbed.rest import Json

pytestmark = pytest.mark.e2e

TESTS = Path(__file__).parent.parent


def pod(name: str, script: str = "", **spec: object) -> Json:
    """A pod that runs a shell script in the image that every testbed node has."""
    container = {"name": "main", "image": tiny_image.NAME, "imagePullPolicy": "Never", "command": ["sh", "-ec", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def service(name: str, *, app: str, **spec: object) -> Json:
    """A Service for the pods of `app`, from port 80 to their port 8080."""
    ports = [{"port": 80, "targetPort": 8080}]
    body = {"selector": {"app": app}, "ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": body}


class Namespace:
    """One namespace of a cluster, for brevity."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self._cluster = cluster

    def apply(self, *manifests: Json) -> None:
        """Make objects."""
        everything = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self._cluster.kubectl("apply", "-n", self.name, "-f", "-", stdin=json.dumps(everything))

    def pod(self, name: str) -> Json:
        """A pod as it is now."""
        return self._cluster.api.request("GET", f"/api/v1/namespaces/{self.name}/pods/{name}")

    def await_phase(self, phase: str, *names: str) -> None:
        """Wait until pods are in a phase; fail with their logs."""
        for name in names:
            what = f"jsonpath={{.status.phase}}={phase}"
            waited = self._cluster.kubectl(
                "wait",
                "-n",
                self.name,
                f"--for={what}",
                f"pod/{name}",
                f"--timeout={PATIENCE_SECONDS:.0f}s",
                check=False,
            )
            assert waited.returncode == 0, f"{waited.stderr}\n{self.pod(name)['status']}\n{self.logs(name)}"

    def logs(self, name: str) -> str:
        """What a pod's container has written."""
        return self._cluster.kubectl("logs", "-n", self.name, name, check=False).stdout


@pytest.fixture
def here(node_testbed: NodeCluster, node_namespace: str) -> Namespace:
    """A fresh namespace of the testbed's cluster with nodes."""
    return Namespace(node_testbed, node_namespace)


SERVE = "echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"


def test_a_pod_runs_to_completion_and_its_log_can_be_read(here: Namespace) -> None:
    here.apply(pod("one", "echo it ran; exit 0"), pod("two", "echo and failed; exit 7"))
    here.await_phase("Succeeded", "one")
    here.await_phase("Failed", "two")
    assert (here.logs("one"), here.logs("two")) == ("it ran\n", "and failed\n")
    [container] = here.pod("two")["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 7


def test_two_pods_find_each_other_by_hostname_and_headless_service_before_they_are_ready(here: Namespace) -> None:
    never = {"exec": {"command": ["false"]}}
    names = ("worker-0", "worker-1")
    for name, peer in zip(names, reversed(names), strict=True):
        # Each stays until its peer has found it: otherwise one may be done before the other asks for the first time.
        body = pod(
            name,
            f"nc -ll -p 2222 -e sh -c 'echo {name}; touch /found' & "
            f"until nc {peer}.job.{here.name}.svc 2222; do sleep 0.1; done; until [ -e /found ]; do sleep 0.1; done",
            hostname=name,
            subdomain="job",
        )
        body["metadata"]["labels"] = {"app": "job"}
        body["spec"]["containers"][0]["readinessProbe"] = never
        here.apply(body)
    here.apply(service("job", app="job", clusterIP="None", publishNotReadyAddresses=True))
    here.await_phase("Succeeded", *names)
    assert [here.logs(name).splitlines()[-1] for name in names] == ["worker-1", "worker-0"]


def test_a_cluster_ip_leads_to_a_pod_also_from_that_pod_itself(here: Namespace) -> None:
    ask = "until wget -qO- http://web; do sleep 0.1; done"
    here.apply(service("web", app="server"), pod("server", f"({SERVE}) & {ask}; sleep 300"), pod("client", ask))
    here.await_phase("Succeeded", "client")
    assert here.logs("client").endswith("hello\n")
    wait_until(lambda: "hello" in here.logs("server"), what="the answer to the pod that asked itself")


def test_a_pod_speaks_to_the_api_server_with_its_service_account(node_testbed: NodeCluster, here: Namespace) -> None:
    tools = {"hostPath": {"path": str(node_testbed.kubectl_path.parent), "type": "Directory"}}
    body = pod("client", "/tools/kubectl auth whoami -o jsonpath={.status.userInfo.username}")
    body["spec"]["volumes"] = [{"name": "tools", **tools}]
    body["spec"]["containers"][0]["volumeMounts"] = [{"name": "tools", "mountPath": "/tools", "readOnly": True}]
    body["spec"]["containers"][0]["env"] = [{"name": "HOME", "value": "/tmp"}]
    here.apply(body)
    here.await_phase("Succeeded", "client")
    assert here.logs("client") == f"system:serviceaccount:{here.name}:default"


def test_containers_of_a_pod_share_a_volume(here: Namespace) -> None:
    body = pod("sharing", "until cat /shared/word; do sleep 0.1; done")
    mount = [{"name": "shared", "mountPath": "/shared"}]
    writer = {**body["spec"]["containers"][0], "name": "writer", "command": ["sh", "-c", "echo word > /shared/word"]}
    body["spec"] |= {"volumes": [{"name": "shared", "emptyDir": {}}]}
    body["spec"]["containers"] = [{**one, "volumeMounts": mount} for one in (*body["spec"]["containers"], writer)]
    here.apply(body)
    here.await_phase("Succeeded", "sharing")


def test_an_image_that_no_node_has_is_not_waited_for_in_vain(here: Namespace) -> None:
    body = pod("lost", "")
    body["spec"]["containers"][0] |= {"image": "localhost/nowhere:1"}
    here.apply(body)

    def reason() -> str:
        statuses = here.pod("lost")["status"].get("containerStatuses", [{}])
        return str(statuses[0].get("state", {}).get("waiting", {}).get("reason"))

    wait_until(lambda: reason() == "ErrImageNeverPull", what="the kubelet's word on the image")


@pytest.mark.takes_accelerators
@pytest.mark.parametrize(
    ("selector", "resource", "count", "landed"),
    [
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "nvidia.com/gpu", 1, {"gke-l4-0", "gke-l4-1"}),
        ({"eks.amazonaws.com/instance-gpu-name": "l4"}, "nvidia.com/gpu", 1, {"eks-l4-0", "eks-l4-1"}),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}, "nvidia.com/gpu", 8, {"bare-a100-0"}),
        ({"cloud.google.com/gke-tpu-topology": "2x4"}, "google.com/tpu", 8, {"gke-tpu-2x4-one-host"}),
        ({"cloud.google.com/gke-tpu-topology": "4x4"}, "google.com/tpu", 4, {f"gke-tpu-4x4-{i}" for i in range(4)}),
    ],
)
def test_a_pod_that_asks_for_accelerators_runs_on_a_node_that_has_them(
    here: Namespace, selector: dict[str, str], resource: str, count: int, landed: set[str]
) -> None:
    body = pod("training", "", nodeSelector=selector, tolerations=[{"key": resource, "operator": "Exists"}])
    body["spec"]["containers"][0]["resources"] = {"limits": {resource: str(count)}}
    here.apply(body)
    here.await_phase("Running", "training")
    assert here.pod("training")["spec"]["nodeName"] in landed


def test_a_pod_that_tolerates_no_accelerator_runs_on_the_real_node(
    here: Namespace, fake_nodes: tuple[FakeNode, ...]
) -> None:
    assert len(fake_nodes) > 1
    here.apply(pod("ordinary", "true"))
    here.await_phase("Succeeded", "ordinary")
    assert here.pod("ordinary")["spec"]["nodeName"] == NAME


@dataclass(frozen=True)
class Footprint:
    """What one cluster with nodes takes of this machine, noted while it runs."""

    run: Path
    network: Network
    namespaces: frozenset[str]

    @classmethod
    def of(cls, cluster: NodeCluster) -> "Footprint":
        """The footprint of a running cluster."""
        return cls(cluster.run, cluster.machine.network, namespaces_of(cluster.machine.pid))

    def left(self) -> list[str]:
        """What is there of it now."""
        mounts = (PROC / "self/mounts").read_text().splitlines()
        routes = output("ip", "route").splitlines()
        link = Path(f"/sys/class/net/{self.network.link}")
        return [
            *(f"process {pid}" for pid in all_pids() if self.namespaces & namespaces_of(pid)),
            *(f"process {pid}" for pid in all_pids() if f"{self.run}/" in command_line(pid)),
            *(f"control group {path}" for path in cgroups.groups(self.run)),
            *(f"mount {line}" for line in mounts if str(self.run) in line),
            *(f"route {line}" for line in routes if str(self.network.pods) in line),
            *(f"file {path}" for path in (self.run, link) if path.exists()),
        ]


def all_pids() -> list[int]:
    """All processes of this machine that run; one that has ended is for its new parent to bury."""
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    return [pid for pid in pids if (known := stat(pid)) is not None and known.alive]


def command_line(pid: int) -> str:
    """The command line of a process, "" if it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def namespaces_of(pid: int) -> frozenset[str]:
    """The process, mount and network namespaces of a process that are not this one's.

    None, if it has ended or is closed to root (a virtual machine's first process may be): so it is no child of ours.
    """
    try:
        return frozenset(os.readlink(PROC / str(pid) / "ns" / kind) for kind in KINDS) - OWN_NAMESPACES
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return frozenset()


KINDS = ("pid", "mnt", "net")
OWN_NAMESPACES: frozenset[str] = frozenset(os.readlink(PROC / "self" / "ns" / kind) for kind in KINDS)


def settings_of_this_machine() -> str:
    """What a node changes where it runs, as it is out here: iptables rules, without their counters, and kernel
    settings."""
    rules = [line.partition(" [")[0] for line in output("iptables-save").splitlines() if not line.startswith("#")]
    names = ("vm.overcommit_memory", "kernel.panic", "kernel.panic_on_oops", "net.ipv4.ip_forward")
    return "\n".join([*rules, output("sysctl", *names)])


class TestStopping:
    """A cluster that has run a pod takes all with it, however it ends."""

    def test_a_running_cluster_leaves_settings_of_this_machine_alone(self, own_node_cluster: NodeCluster) -> None:
        before = settings_of_this_machine()
        assert "KUBE-SERVICES" in own_node_cluster.machine.run("iptables-save")
        assert "KUBE-SERVICES" not in before
        here = Namespace(own_node_cluster, own_node_cluster.new_namespace())
        here.apply(service("web", app="one"), pod("one", SERVE))
        here.await_phase("Running", "one")
        assert settings_of_this_machine() == before

    def test_stop_leaves_nothing(self, own_node_cluster: NodeCluster) -> None:
        footprint = Footprint.of(own_node_cluster)
        assert {line.split()[0] for line in footprint.left()} >= {"process", "control", "route", "file"}
        own_node_cluster.stop()
        assert footprint.left() == []


OWNER = """
import os, sys, time
from testbed import NodeCluster, binaries
programs = binaries.ensure((*binaries.CONTROL_PLANE, *binaries.NODE))
NodeCluster.launch(sys.argv[1], owner=os.getpid(), binaries=programs)
print("started", flush=True)
time.sleep(300)
"""


@pytest.fixture
def crashed(node_testbed: NodeCluster) -> Footprint:
    """A cluster that ran a pod when its owner and all that watched over it were killed."""
    name = f"crash-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    with subprocess.Popen([sys.executable, "-c", OWNER, name], cwd=TESTS, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "started\n"
            cluster = NodeCluster(runs.root() / name, binaries=node_testbed.binaries)
            here = Namespace(cluster, cluster.new_namespace())
            here.apply(pod("one", SERVE))
            here.await_phase("Running", "one")
            footprint = Footprint.of(cluster)
            supervisors = [process.supervisor for process in cluster.processes]
        finally:
            owner.kill()
    for supervisor in supervisors:
        assert supervisor is not None
        with suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGKILL)
    return footprint


def test_after_a_crash_the_kernel_ends_all_and_the_next_start_removes_the_rest(crashed: Footprint) -> None:
    wait_until(lambda: not any("process" in line for line in crashed.left()), what="the end of all processes")
    successor = runs.create(f"after-{crashed.run.name}", owner=os.getpid())
    try:
        assert crashed.left() == []
    finally:
        runs.remove(successor)


def test_a_cluster_starts_next_to_another_and_after_it_again(node_testbed: NodeCluster) -> None:
    for _ in range(2):
        name = f"again-{os.getpid()}"
        cluster = NodeCluster.launch(name, owner=os.getpid(), binaries=node_testbed.binaries)
        try:
            assert cluster.machine.network != node_testbed.machine.network
            here = Namespace(cluster, cluster.new_namespace())
            here.apply(pod("one", "true"))
            here.await_phase("Succeeded", "one")
        finally:
            cluster.stop()
