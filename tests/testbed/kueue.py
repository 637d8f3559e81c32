"""Kueue's manager as a plain process next to a control plane, with its CRDs and without its webhooks.

Its CRDs come from the module that it is built from.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from loopback import free_ports
from testbed import binaries, runs
from testbed.binaries import KUEUE
from testbed.control_plane import ADDRESS, ControlPlane
from testbed.errors import ApiError
from testbed.pki import Authority
from testbed.processes import Process, wait_until
from testbed.rest import RestClient

PROGRAM = "kueue"
VERSION = "kueue.x-k8s.io/v1beta2"
OUR_KIND = "DistributedTrainingJob.v1alpha1.training.dtj.dev"

# Kueue reads the certificate of its metrics from this folder alone, so it gets an /etc of its own.
_ENTER = """
set -e
certificates=$1; shift
mount -t tmpfs none /etc
mkdir -p /etc/kueue/metrics
ln -s "$certificates" /etc/kueue/metrics/certs
exec "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The times that Kueue waits, in seconds.

    `ready` is for all pods to become ready after admission, `recovery` for the same after a pod was lost; `backoff` is
    how long the job then stays out of its queue, for the first time. `most_requeues` ends that: None is no limit, as by
    default.

    By default no test takes so long that a job of its own is evicted.
    """

    ready: int = 3600
    recovery: int = 3600
    backoff: int = 8
    most_requeues: int | None = None


class Kueue:
    """A manager of Kueue in the run of a control plane. Any process may hold an instance: all state is in the run."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._folder = plane.run / PROGRAM
        self._process = Process(PROGRAM, run=plane.run)

    @property
    def log(self) -> str:
        """What the manager has written."""
        return self._process.log.read_text(errors="replace")

    def running(self) -> bool:
        """Whether the process runs."""
        return bool(self._process.pids)

    def install(self) -> None:
        """Have the API server serve Kueue's resources, and wait until it does."""
        self._plane.install_crds(binaries.assets_of(KUEUE), server_side=True)
        wait_until(self._is_discovered, what="Kueue's resources to be found")

    def start(self, limits: Limits, *, feature_gates: Mapping[str, bool] | None = None) -> None:
        """Start the manager; return when it is ready. Raises StartError with the end of its log if it is not."""
        self._folder.mkdir(exist_ok=True)
        webhook, health = free_ports(2)
        certificates = self._write_certificates()
        configuration = self._folder / "configuration.yaml"
        configuration.write_text(yaml.safe_dump(self._configuration(limits, certificates, webhook, health)))
        gates = {"VisibilityOnDemand": False, **(feature_gates or {})}
        own_etc = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        command = [
            *own_etc,
            *("sh", "-c", _ENTER, PROGRAM, str(certificates)),
            str(binaries.ensure((PROGRAM,))[PROGRAM]),
            f"--config={configuration}",
            f"--kubeconfig={self._plane.kubeconfig}",
            "--zap-log-level=2",
            "--feature-gates=" + ",".join(f"{name}={str(on).lower()}" for name, on in gates.items()),
        ]
        self._process.start(command, owner=runs.owner_of(self._plane.run))
        probe = RestClient(health, address=ADDRESS, tls=None)
        self._process.await_ready(lambda: _is_ready(probe))

    def _is_discovered(self) -> bool:
        """Kueue's manager ends if it starts before that, which is a moment later."""
        try:
            found = self._plane.api.request("GET", f"/apis/{VERSION}")["resources"]
        except ApiError:
            return False
        return any(each["name"] == "workloads" for each in found)

    def stop(self) -> None:
        """End the manager."""
        self._process.kill()

    def _write_certificates(self) -> Path:
        """One certificate under the names that Kueue looks for."""
        folder = self._folder / "certificates"
        folder.mkdir(exist_ok=True)
        pair = Authority(self._plane.run / "pki").issue(PROGRAM, hosts=(ADDRESS,))
        (folder / "tls.crt").write_bytes(pair.certificate.read_bytes())
        (folder / "tls.key").write_bytes(pair.key.read_bytes())
        return folder

    def _configuration(self, limits: Limits, certificates: Path, webhook: int, health: int) -> dict[str, object]:
        requeuing: dict[str, object] = {"backoffBaseSeconds": limits.backoff}
        if limits.most_requeues is not None:
            requeuing["backoffLimitCount"] = limits.most_requeues
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": "kube-system",
            "health": {"healthProbeBindAddress": f"{ADDRESS}:{health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": ADDRESS, "port": webhook, "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 300, "burst": 500},
            "integrations": {"frameworks": ["batch/job"], "externalFrameworks": [OUR_KIND]},
            "multiKueue": {"externalFrameworks": [{"name": OUR_KIND}]},
            "waitForPodsReady": {
                "timeout": f"{limits.ready}s",
                "recoveryTimeout": f"{limits.recovery}s",
                "requeuingStrategy": requeuing,
            },
        }


def _is_ready(probe: RestClient) -> bool:
    try:
        return probe.text("GET", "/readyz") == "ok"
    except (ApiError, OSError):
        time.sleep(0.1)
        return False
