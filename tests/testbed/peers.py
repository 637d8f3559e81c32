"""Operators of other projects next to a control plane: training-operator (TFJob) and JobSet.

Their CRDs come from the modules that they are built from. Both ask for the certificate of a webhook server before they
work.
"""

import json
from collections.abc import Mapping

from loopback import free_ports
from testbed import binaries
from testbed.binaries import JOBSET, TRAINING_OPERATOR, Module
from testbed.control_plane import ADDRESS
from testbed.manager import Manager

TFJOBS = "/apis/kubeflow.org/v1"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"

_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_OWN = "/tmp/k8s-webhook-server"


class _Peer(Manager):
    def _apply(self, module: Module, *, crd: str = "") -> None:
        binaries.ensure((self.program,))  # The assets of a module are there once its programs are built.
        self._plane.kubectl("apply", "--server-side", "--filename", str(binaries.assets_of(module) / crd))
        self._await_served()

    def _kubeconfig(self, user: str) -> str:
        """An option: an administrator of this name."""
        return f"--kubeconfig={self._plane.kubeconfig_for(user, groups=('system:masters',))}"


class TrainingOperator(_Peer):
    """Kubeflow's training-operator v1, for TFJobs alone."""

    program = "training-operator.v1"
    served = TFJOBS
    kind = "TFJob"

    def install(self) -> None:
        """Have the API server serve TFJobs; make what the operator wants to find before it works."""
        self._apply(TRAINING_OPERATOR, crd="kubeflow.org_tfjobs.yaml")
        webhooks = {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": []}
        self._plane.api.request("POST", _WEBHOOKS, webhooks)
        namespace = self._plane.new_namespace("kubeflow")
        secret = {"metadata": {"name": "training-operator-webhook-cert"}}
        self._plane.api.request("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
        self._folder.mkdir(exist_ok=True)
        (self._folder / "namespace").write_text(namespace)

    def start(self, *arguments: str, user: str) -> None:
        """Start it as an administrator of this name; return when it is ready."""
        webhook, health = free_ports(2)
        self._start(
            self._kubeconfig(user),
            "--enable-scheme=tfjob",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address={ADDRESS}:{health}",
            f"--webhook-server-port={webhook}",
            "--zap-log-level=error",
            *arguments,
            health=health,
            own=_OWN,
            folder=f"{_OWN}/serving-certs",
            environment={"MY_POD_NAMESPACE": (self._folder / "namespace").read_text()},
        )


class JobSetManager(_Peer):
    """The manager of JobSets."""

    program = "jobset"
    served = JOBSETS
    kind = "JobSet"

    def install(self) -> None:
        """Have the API server serve JobSets."""
        self._apply(JOBSET)

    def start(self, client: Mapping[str, int], *, user: str) -> None:
        """Start it as an administrator of this name, with these limits of its calls ({}: its own)."""
        webhook, health = free_ports(2)
        configuration = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "health": {"healthProbeBindAddress": f"{ADDRESS}:{health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": ADDRESS, "port": webhook, "certDir": str(self._write_certificates())},
            **({"clientConnection": client} if client else {}),
        }
        file = self._folder / "configuration.json"
        file.write_text(json.dumps(configuration))
        self._start(f"--config={file}", self._kubeconfig(user), "--zap-log-level=error", health=health)
