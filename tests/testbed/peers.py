"""Operators of other projects next to a control plane, without their webhooks: training-operator (TFJob) and JobSet.

Their CRDs come from the modules that they are built from. Both ask for the certificate of a webhook server before they
work; no webhook is registered, so nobody calls it.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from loopback import free_ports
from testbed import binaries, runs
from testbed.binaries import JOBSET, TRAINING_OPERATOR
from testbed.control_plane import ADDRESS, ControlPlane
from testbed.errors import ApiError
from testbed.pki import Authority
from testbed.processes import Process, wait_until
from testbed.rest import RestClient

TFJOBS = "/apis/kubeflow.org/v1"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2"

_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
# The training operator reads the certificate from this folder alone, so it gets one of its own there.
_ENTER = """
set -e
certificates=$1; shift
mkdir -p /tmp/k8s-webhook-server
mount -t tmpfs none /tmp/k8s-webhook-server
ln -s "$certificates" /tmp/k8s-webhook-server/serving-certs
exec "$@"
"""


class _Peer:
    """One operator in the run of a control plane. Any process may hold an instance: all state is in the run."""

    program: str
    served: str
    """The path of the API that it serves, which has `kind`."""
    kind: str

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._folder = plane.run / self.program
        self._process = Process(self.program, run=plane.run)

    @property
    def pids(self) -> list[int]:
        """Its live processes."""
        return self._process.pids

    def stop(self) -> None:
        """End it."""
        self._process.kill()

    def _install(self, crd: Path) -> None:
        self._plane.kubectl("apply", "--server-side", "--filename", str(crd))
        wait_until(self._is_served, what=f"{self.kind} to be served")

    def _is_served(self) -> bool:
        try:
            found = self._plane.api.request("GET", self.served)["resources"]
        except ApiError:
            return False
        return any(each["kind"] == self.kind for each in found)

    def _kubeconfig(self, user: str) -> Path:
        return self._plane.kubeconfig_for(user, groups=("system:masters",))

    def _certificates(self) -> Path:
        folder = self._folder / "certificates"
        folder.mkdir(parents=True, exist_ok=True)
        pair = Authority(self._plane.run / "pki").issue(self.program, hosts=(ADDRESS,))
        (folder / "tls.crt").write_bytes(pair.certificate.read_bytes())
        (folder / "tls.key").write_bytes(pair.key.read_bytes())
        return folder

    def _start(self, command: Sequence[str], *, health: int) -> None:
        self._process.start(list(command), owner=runs.owner_of(self._plane.run))
        probe = RestClient(health, address=ADDRESS, tls=None)
        self._process.await_ready(lambda: _is_ready(probe))


class TrainingOperator(_Peer):
    """Kubeflow's training-operator v1, for TFJobs alone."""

    program = "training-operator.v1"
    served = TFJOBS
    kind = "TFJob"

    def install(self) -> None:
        """Have the API server serve TFJobs; make what the operator wants to find before it works."""
        self._install(binaries.assets_of(TRAINING_OPERATOR) / "kubeflow.org_tfjobs.yaml")
        webhooks = {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": []}
        self._plane.api.request("POST", _WEBHOOKS, webhooks)
        namespace = self._plane.new_namespace("kubeflow")
        secret = {"metadata": {"name": "training-operator-webhook-cert"}}
        self._plane.api.request("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
        self._folder.mkdir(exist_ok=True)
        (self._folder / "namespace").write_text(namespace)

    def start(self, *arguments: str, user: str) -> None:
        """Start it as an administrator of this name; return when it is ready.

        Raises StartError with the end of its log if it is not.
        """
        webhook, health = free_ports(2)
        own_tmp = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        command = [
            *own_tmp,
            *("sh", "-c", _ENTER, self.program, str(self._certificates())),
            *("env", f"MY_POD_NAMESPACE={(self._folder / 'namespace').read_text()}"),
            str(binaries.ensure((self.program,))[self.program]),
            f"--kubeconfig={self._kubeconfig(user)}",
            "--enable-scheme=tfjob",
            "--metrics-bind-address=0",
            f"--health-probe-bind-address={ADDRESS}:{health}",
            f"--webhook-server-port={webhook}",
            "--zap-log-level=error",
            *arguments,
        ]
        self._start(command, health=health)


class JobSetManager(_Peer):
    """The manager of JobSets."""

    program = "jobset"
    served = JOBSETS
    kind = "JobSet"

    def install(self) -> None:
        """Have the API server serve JobSets."""
        self._install(binaries.assets_of(JOBSET))

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
            "webhook": {"host": ADDRESS, "port": webhook, "certDir": str(self._certificates())},
            **({"clientConnection": client} if client else {}),
        }
        file = self._folder / "configuration.json"
        file.write_text(json.dumps(configuration))
        program = str(binaries.ensure((self.program,))[self.program])
        command = [program, f"--config={file}", f"--kubeconfig={self._kubeconfig(user)}", "--zap-log-level=error"]
        self._start(command, health=health)


def _is_ready(probe: RestClient) -> bool:
    try:
        return probe.text("GET", "/readyz") == "ok"
    except (ApiError, OSError):
        time.sleep(0.1)
        return False
