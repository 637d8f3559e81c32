"""Kueue's manager as a plain process next to a control plane, with its CRDs and without its webhooks.

Its CRDs come from the module that it is built from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from loopback import free_ports
from testbed import binaries
from testbed.binaries import KUEUE
from testbed.control_plane import ADDRESS
from testbed.manager import Manager

PROGRAM = "kueue"
VERSION = "kueue.x-k8s.io/v1beta2"
OUR_KIND = "DistributedTrainingJob.v1alpha1.training.dtj.dev"


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


class Kueue(Manager):
    """The manager of Kueue."""

    program = PROGRAM
    served = f"/apis/{VERSION}"
    kind = "Workload"

    def install(self) -> None:
        """Have the API server serve Kueue's resources, and wait until it does."""
        self._plane.install_crds(binaries.assets_of(KUEUE), server_side=True)
        self._await_served()

    def start(
        self,
        limits: Limits,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        frameworks: Sequence[str] = ("batch/job",),
    ) -> None:
        """Start the manager; return when it is ready. Raises StartError with the end of its log if it is not.

        `frameworks` are its own integrations that are on.
        """
        self._folder.mkdir(exist_ok=True)
        webhook, health = free_ports(2)
        configuration = self._folder / "configuration.yaml"
        configuration.write_text(yaml.safe_dump(self._configuration(limits, webhook, health, frameworks)))
        gates = {"VisibilityOnDemand": False, **(feature_gates or {})}
        self._start(
            f"--config={configuration}",
            f"--kubeconfig={self._plane.kubeconfig}",
            "--zap-log-level=2",
            "--feature-gates=" + ",".join(f"{name}={str(on).lower()}" for name, on in gates.items()),
            health=health,
            # It reads the certificate of its metrics from this folder alone.
            own="/etc",
            folder="/etc/kueue/metrics/certs",
        )

    def _configuration(self, limits: Limits, webhook: int, health: int, frameworks: Sequence[str]) -> dict[str, object]:
        requeuing: dict[str, object] = {"backoffBaseSeconds": limits.backoff}
        if limits.most_requeues is not None:
            requeuing["backoffLimitCount"] = limits.most_requeues
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": "kube-system",
            "health": {"healthProbeBindAddress": f"{ADDRESS}:{health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": ADDRESS, "port": webhook, "certDir": str(self._write_certificates())},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 300, "burst": 500},
            "integrations": {"frameworks": [*frameworks], "externalFrameworks": [OUR_KIND]},
            "multiKueue": {"externalFrameworks": [{"name": OUR_KIND}]},
            "waitForPodsReady": {
                "timeout": f"{limits.ready}s",
                "recoveryTimeout": f"{limits.recovery}s",
                "requeuingStrategy": requeuing,
            },
        }
