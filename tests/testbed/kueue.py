"""Kueue's manager as a plain process next to a control plane, with its CRDs and its webhooks.

Its CRDs come from the module that it is built from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from loopback import free_ports
from testbed import binaries
from testbed.binaries import KUEUE
from testbed.control_plane import ADDRESS
from testbed.manager import Manager
from testbed.pki import Authority

PROGRAM = "kueue"
VERSION = "kueue.x-k8s.io/v1beta2"
RECOVERY_SECONDS = 3600
"""For all pods to become ready again after one was lost."""

OUR_KIND = "DistributedTrainingJob.v1alpha1.training.dtj.dev"

_MUTATED = ("clusterqueue", "resourceflavor", "workload")
_VALIDATED = ("clusterqueue", "cohort", "resourceflavor", "workload")
"""Of which of Kueue's own resources the API server asks its webhooks (config/components/webhook of its module)."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The times that Kueue waits, in seconds.

    `ready` is for all pods to become ready after admission; `backoff` is how long the job then stays out of its queue,
    for the first time.

    By default no test takes so long that a job of its own is evicted.
    """

    ready: int = 3600
    backoff: int = 8


class Kueue(Manager):
    """The manager of Kueue."""

    program = PROGRAM
    served = f"/apis/{VERSION}"
    kind = "Workload"

    def install(self) -> None:
        """Have the API server serve Kueue's resources, and wait until it does."""
        self._plane.install_crds(binaries.assets_of(KUEUE), server_side=True)
        self._await_served()

    def start(self, limits: Limits, *, frameworks: Sequence[str] = ("batch/job",)) -> None:
        """Start the manager; return when it is ready. Raises StartError with the end of its log if it is not.

        `frameworks` are its own integrations that are on.
        """
        self._folder.mkdir(exist_ok=True)
        webhook, health = free_ports(2)
        configuration = self._folder / "configuration.yaml"
        configuration.write_text(yaml.safe_dump(self._configuration(limits, webhook, health, frameworks)))
        self._start(
            f"--config={configuration}",
            f"--kubeconfig={self._plane.kubeconfig}",
            "--zap-log-level=2",
            "--feature-gates=VisibilityOnDemand=false",
            health=health,
            # It reads the certificate of its metrics from this folder alone.
            own="/etc",
            folder="/etc/kueue/metrics/certs",
        )
        self._plane.apply(
            self._webhooks("Mutating", _MUTATED, webhook, "CREATE"),
            self._webhooks("Validating", _VALIDATED, webhook, "CREATE", "UPDATE"),
        )

    def _webhooks(self, does: str, kinds: tuple[str, ...], port: int, *operations: str) -> dict[str, object]:
        """Have the API server ask the manager about these kinds, as an installation of Kueue does."""
        group, version = VERSION.split("/")
        verb = {"Mutating": "mutate", "Validating": "validate"}[does]
        webhooks = [
            {
                "name": f"{verb}.{kind}.kb.io",
                "clientConfig": {
                    "url": f"https://{ADDRESS}:{port}/{verb}-{group.replace('.', '-')}-{version}-{kind}",
                    "caBundle": Authority(self._plane.run / "pki").bundle,
                },
                "rules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": [version],
                        "operations": [*operations],
                        "resources": [f"{kind}s", *([f"{kind}s/status"] if "UPDATE" in operations else [])],
                    }
                ],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for kind in kinds
        ]
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{does}WebhookConfiguration",
            "metadata": {"name": PROGRAM},
            "webhooks": webhooks,
        }

    def _configuration(self, limits: Limits, webhook: int, health: int, frameworks: Sequence[str]) -> dict[str, object]:
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
                "recoveryTimeout": f"{RECOVERY_SECONDS}s",
                "requeuingStrategy": {"backoffBaseSeconds": limits.backoff},
            },
        }
