"""Katib's controller as a plain process next to a control plane, with its CRDs, its rights and its webhooks.

They come from its module. Its algorithms, its collectors and its database of metrics are not here: a test plays the
first two, and go/katib/main.go stands for the third.
"""

from functools import cached_property
from pathlib import Path

import yaml

from loopback import free_ports
from testbed import binaries, runs, sources
from testbed.binaries import KATIB
from testbed.control_plane import ADDRESS, ControlPlane
from testbed.manager import Manager
from testbed.pki import Authority
from testbed.processes import Process

NAMESPACE = "kubeflow"
INJECTION = "katib.kubeflow.org/metrics-collector-injection=enabled"
"""The label of a namespace into whose pods Katib injects collectors."""

_USER = f"system:serviceaccount:{NAMESPACE}:katib-controller"
_CERTIFICATES = "/tmp/cert"
_DATABASE = "katib-database"


class Katib(Manager):
    """Its controller."""

    program = "katib-controller"
    served = "/apis/kubeflow.org/v1beta1"
    kind = "Experiment"

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self._database = Process(_DATABASE, run=plane.run)
        self._metrics = self._folder / "metrics"

    @cached_property
    def module(self) -> Path:
        """Its module."""
        return sources.source_of(KATIB)

    def install(self) -> None:
        """Have the API server serve Experiments, Suggestions and Trials, and give the controller its rights."""
        components = self.module / "manifests" / "v1beta1" / "components"
        self._plane.kubectl("apply", "--server-side", "--kustomize", str(components / "crd"))
        for file in ("namespace/namespace.yaml", "controller/rbac.yaml"):
            self._plane.kubectl("apply", "--server-side", "--filename", str(components / file))
        self._await_served()

    def start(self) -> None:
        """Start the controller, and the database; return when it is ready."""
        self._metrics.mkdir(parents=True)
        webhook, health, database = free_ports(3)
        program = str(binaries.ensure((_DATABASE,))[_DATABASE])
        owner = runs.owner_of(self._plane.run)
        self._database.start([program, f"{ADDRESS}:{database}", str(self._metrics)], owner=owner)
        self._start(
            f"--katib-config={self._configure(webhook, health)}",
            f"--kubeconfig={self._plane.kubeconfig_for(_USER)}",
            health=health,
            own=_CERTIFICATES,
            folder=_CERTIFICATES,
            environment={
                "KATIB_DB_MANAGER_SERVICE_NAMESPACE": "",
                "KATIB_DB_MANAGER_SERVICE_IP": ADDRESS,
                "KATIB_DB_MANAGER_SERVICE_PORT": str(database),
            },
        )
        self._plane.apply(*self._webhooks(webhook))

    def report(self, trial: str, value: str) -> None:
        """Store what a collector has read: the trial has reached this value of its metric."""
        (self._metrics / trial).write_text(value)

    def stop(self) -> None:
        """End the controller and the database."""
        super().stop()
        self._database.kill()

    def _configure(self, webhook: int, health: int) -> Path:
        """Write its configuration into a file, which it reads at the start, and where it reads the rest later."""
        shipped = self.module / "manifests" / "v1beta1" / "installs" / "katib-standalone" / "katib-config.yaml"
        configuration = yaml.safe_load(shipped.read_text())
        configuration["init"]["certGenerator"] = {"enable": False}
        configuration["init"]["controller"] |= {
            "webhookPort": webhook,
            "healthzAddr": f"{ADDRESS}:{health}",
            "metricsAddr": "0",
        }
        file = self._folder / "katib-config.yaml"
        file.write_text(yaml.safe_dump(configuration))
        metadata = {"name": "katib-config", "namespace": NAMESPACE}
        self._plane.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {file.name: file.read_text()}}
        )
        return file

    def _webhooks(self, port: int) -> list[dict[str, object]]:
        """Its webhooks as its manifests have them, at this port of this machine."""
        written = self.module / "manifests" / "v1beta1" / "components" / "webhook" / "webhooks.yaml"
        configurations: list[dict[str, object]] = []
        for body in yaml.safe_load_all(written.read_text()):
            for hook in body["webhooks"]:
                url = f"https://{ADDRESS}:{port}{hook['clientConfig']['service']['path']}"
                hook["clientConfig"] = {"url": url, "caBundle": Authority(self._plane.run / "pki").bundle}
            configurations.append(body)
        return configurations
