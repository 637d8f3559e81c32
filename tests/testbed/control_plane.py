"""A Kubernetes control plane of plain processes on loopback: etcd, API server, controller manager, scheduler.

Real servers, real admission, RBAC and garbage collection; no node, so pods stay Pending unless a test plays the
kubelet and writes their status. Needs no root. `NodeCluster` adds a node.
"""

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path
from typing import Self

from loopback import free_ports
from testbed import audit, kubeconfig, runs
from testbed.audit import AuditLog
from testbed.cluster import Cluster, Image
from testbed.errors import StartError
from testbed.etcd import Etcd
from testbed.pki import Authority, KeyPair, new_key, write_key
from testbed.processes import Process
from testbed.rest import RestClient, mutual_tls
from testbed.versions import Version, version_of

ADMIN = "testbed-admin"
ADDRESS = "127.0.0.1"
SERVICE_NETWORK = ip_network("10.96.0.0/16")


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The loopback ports of one control plane, the same ones for its whole life."""

    etcd: int
    apiserver: int


class ControlPlane(Cluster):
    """One control plane in a run's directory. Any process may hold an instance: all state is in the directory."""

    service_networks = str(SERVICE_NETWORK)
    """The addresses of Services: one network, or two of different families."""
    controllers = "*,-node-lifecycle-controller"
    """All but the one that taints nodes without heartbeats: the nodes that tests make send none."""

    def __init__(self, run: Path, *, binaries: Mapping[str, Path]) -> None:
        self.run = run
        self.binaries = binaries
        self.audit = AuditLog(run / "audit.log")
        self._etcd = Process("etcd", run=run)
        self._apiserver = Process("kube-apiserver", run=run)
        self._controllers = Process("kube-controller-manager", run=run)
        self._scheduler = Process("kube-scheduler", run=run)

    @property
    def processes(self) -> tuple[Process, ...]:
        """Its processes, in the order in which they start."""
        servers = (self._etcd, self._apiserver, self._controllers)
        return (*servers, self._scheduler) if "kube-scheduler" in self.binaries else servers

    @cached_property
    def ports(self) -> Ports:
        """Chosen once, then read from the directory."""
        file = self.run / "ports.json"
        if not file.exists():
            etcd, apiserver = free_ports(2)
            file.write_text(json.dumps(asdict(Ports(etcd=etcd, apiserver=apiserver))))
        return Ports(**json.loads(file.read_text()))

    @property
    def version(self) -> Version:
        """The version of Kubernetes, by the name of the API server's program."""
        return version_of(self.binaries["kube-apiserver"])

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://{self.address}:{self.ports.apiserver}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.run / "kubeconfig"

    @property
    def kubectl_path(self) -> Path:
        """The program kubectl, of the same version."""
        return self.binaries["kubectl"]

    @property
    def address(self) -> str:
        """The address of this machine that the API server listens on."""
        return ADDRESS

    @cached_property
    def api(self) -> RestClient:
        """The API server, as an administrator."""
        return RestClient(self.ports.apiserver, address=self.address, tls=self._tls)

    def lasting_api(self) -> RestClient:
        """As `api`, over one connection of its own: for one thread that asks a lot. Close it."""
        return RestClient(self.ports.apiserver, address=self.address, tls=self._tls, lasting=True)

    @cached_property
    def etcd(self) -> Etcd:
        """The store behind the API server."""
        return Etcd(RestClient(self.ports.etcd, tls=self._tls))

    # -- life -----------------------------------------------------------------------------------------------------

    @classmethod
    def launch(cls, name: str, *, owner: int, binaries: Mapping[str, Path]) -> Self:
        """Start a control plane in a new run called `name`.

        It ends with process `owner` (0: it outlives everyone), or at `stop`. When anything fails it is stopped again;
        `StartError` then holds the end of the log of the process that failed.
        """
        plane = cls(runs.create(name, owner=owner), binaries=binaries)
        try:
            plane.start()
        except BaseException:
            plane.stop()
            raise
        return plane

    def start(self) -> None:
        """Start all processes; return when the API server is ready and the controllers work."""
        owner = runs.owner_of(self.run)
        self._etcd.start(self._etcd_command(), owner=owner)
        self._write_files()
        self._etcd.await_ready(self.etcd.ready)
        self.start_apiserver()
        self._controllers.start(self._controllers_command(), owner=owner)
        if self._scheduler in self.processes:
            self._scheduler.start(self._scheduler_command(), owner=owner)
        self._controllers.await_ready(lambda: self.has_service_account("default"))

    def stop(self) -> None:
        """End all processes at once and delete the run's directory."""
        runs.remove(self.run)

    def running(self) -> bool:
        """Whether all processes run and the API server is ready."""
        return all(process.pids for process in self.processes) and self.api.is_ready()

    def start_apiserver(self) -> None:
        """Start the API server, on the same port with the same data as before; return when it is ready."""
        self._apiserver.start(self._apiserver_command(), owner=runs.owner_of(self.run))
        self._apiserver.await_ready(self.api.is_ready)

    @contextmanager
    def outage(self) -> Iterator[Etcd]:
        """Inside the block the API server is down, by SIGKILL; after it, it is up and ready again.

        Gives the store, in which a test may change things meanwhile: an object deleted there is one whose deletion no
        watch will ever tell of.
        """
        self._apiserver.kill()
        try:
            yield self.etcd
        finally:
            self.start_apiserver()

    def restart_apiserver(self) -> None:
        """Kill the API server and start it again."""
        with self.outage():
            pass

    def expire_watches(self) -> None:
        """Restart the API server without its history: every watch that goes on from where it was gets 410 Gone."""
        with self.outage() as etcd:
            etcd.forget_history()

    # -- use ------------------------------------------------------------------------------------------------------

    def kubeconfig_for(self, user: str, *, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate for `user` in `groups`, whom RBAC grants nothing at first."""
        identity = self._authority.issue(user, groups=groups)
        return kubeconfig.write(
            identity.certificate.with_suffix(".kubeconfig"),
            server=self.url,
            authority=self._authority.root.certificate,
            identity=identity,
            user=user,
        )

    def tls_for(self, user: str, *, groups: Sequence[str] = ()) -> ssl.SSLContext:
        """TLS as that user, for clients that are no kubectl."""
        return mutual_tls(self._authority.root.certificate, identity=self._authority.issue(user, groups=groups))

    def load_image(self, image: Image) -> None:
        """Refused: there is no node to put it on."""
        raise StartError(f"a control plane without a node cannot hold the image {image.name}")

    # -- how it is started ----------------------------------------------------------------------------------------

    @cached_property
    def _authority(self) -> Authority:
        return Authority(self.run / "pki")

    @cached_property
    def _admin(self) -> KeyPair:
        return self._authority.issue(ADMIN, groups=("system:masters",))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return mutual_tls(self._authority.root.certificate, identity=self._admin)

    @cached_property
    def _server(self) -> KeyPair:
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        hosts = dict.fromkeys((ADDRESS, self.address, "localhost", *names, str(SERVICE_NETWORK[1])))
        return self._authority.issue("server", hosts=tuple(hosts))

    def _write_files(self) -> None:
        """The files that the commands below name. The admin's kubeconfig is the last: it says that all is there."""
        write_key(self.run / "pki" / "service-accounts.key", new_key())
        (self.run / "audit-policy.json").write_text(json.dumps(audit.POLICY))
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(self.kubeconfig_for("system:kube-scheduler")),
                "qps": 1000,
                "burst": 2000,
            },
        }
        (self.run / "scheduler.json").write_text(json.dumps(scheduler))
        self.kubeconfig_for(ADMIN, groups=("system:masters",)).replace(self.kubeconfig)

    def _command(self, binary: str, **flags: str | int | Path) -> list[str]:
        options = (f"--{name.replace('_', '-')}={value}" for name, value in flags.items())
        return [str(self.binaries[binary]), *options]

    def _etcd_command(self) -> list[str]:
        client = f"https://{ADDRESS}:{self.ports.etcd}"
        return self._command(
            "etcd",
            data_dir=self.run / "etcd",
            unsafe_no_fsync="true",
            listen_client_urls=client,
            advertise_client_urls=client,
            listen_peer_urls=f"http://{ADDRESS}:0",
            trusted_ca_file=self._authority.root.certificate,
            client_cert_auth="true",
            cert_file=self._server.certificate,
            key_file=self._server.key,
            log_level="warn",
        )

    def _apiserver_command(self) -> list[str]:
        accounts = self.run / "pki" / "service-accounts.key"
        return self._command(
            "kube-apiserver",
            bind_address=self.address,
            secure_port=self.ports.apiserver,
            advertise_address=self.address,
            # Kubernetes refuses a loopback address as an endpoint of the service `kubernetes`.
            endpoint_reconciler_type="none" if self.address == ADDRESS else "lease",
            allow_privileged="true",
            kubelet_preferred_address_types="InternalIP",
            kubelet_client_certificate=self._admin.certificate,
            kubelet_client_key=self._admin.key,
            tls_cert_file=self._server.certificate,
            tls_private_key_file=self._server.key,
            client_ca_file=self._authority.root.certificate,
            etcd_servers=f"https://{ADDRESS}:{self.ports.etcd}",
            etcd_cafile=self._authority.root.certificate,
            etcd_certfile=self._server.certificate,
            etcd_keyfile=self._server.key,
            authorization_mode="Node,RBAC",
            service_account_issuer="https://kubernetes.default.svc",
            service_account_key_file=accounts,
            service_account_signing_key_file=accounts,
            service_cluster_ip_range=self.service_networks,
            audit_policy_file=self.run / "audit-policy.json",
            audit_log_path=self.audit.path,
            audit_log_maxsize=100_000,
            shutdown_delay_duration="0s",
            feature_gates=self.version.feature_gates,
            runtime_config=self.version.runtime_config,
        )

    def _controllers_command(self) -> list[str]:
        return self._command(
            "kube-controller-manager",
            kubeconfig=self.kubeconfig_for("system:kube-controller-manager"),
            leader_elect="false",
            secure_port=0,
            controllers=self.controllers,
            use_service_account_credentials="true",
            service_account_private_key_file=self.run / "pki" / "service-accounts.key",
            root_ca_file=self._authority.root.certificate,
            kube_api_qps=1000,
            kube_api_burst=2000,
            feature_gates=self.version.feature_gates,
        )

    def _scheduler_command(self) -> list[str]:
        return self._command(
            "kube-scheduler",
            config=self.run / "scheduler.json",
            secure_port=0,
            feature_gates=self.version.feature_gates,
        )
