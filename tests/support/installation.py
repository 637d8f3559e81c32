"""The operator as `helm install` puts it into a cluster: where it runs, who leads, what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dtj.api.json import JsonObject
from patience import PATIENCE_SECONDS
from support.chart import CHART, RELEASE, Helm
from testbed import Cluster
from testbed.rest import Json

NAMESPACE = "dtj-system"


@dataclass(frozen=True)
class Installation:
    """One release of the chart in a cluster."""

    cluster: Cluster
    helm: Helm
    values: JsonObject

    def install(self, chart: Path = CHART, values: JsonObject | None = None) -> None:
        """``helm install``, with the values of this installation if none are given; returns when the operator is ready.

        A CRD that is there and belongs to the chart is taken over, as docs/operations.md describes.
        """
        take_over = ("--take-ownership", "--force-conflicts")
        self._release("install", str(chart), "--create-namespace", *take_over, values=values or self.values)

    def upgrade(self, chart: Path, values: JsonObject) -> None:
        """``helm upgrade`` to a chart with these values alone; returns when the new operator is ready."""
        self._release("upgrade", str(chart), "--reset-values", values=values)

    def rollback(self) -> None:
        """``helm rollback`` to the revision before; returns when its operator is ready."""
        self._release("rollback")

    def _release(self, command: str, *options: str, values: JsonObject | None = None) -> None:
        options = (*options, f"--namespace={NAMESPACE}", "--wait", f"--timeout={PATIENCE_SECONDS:.0f}s")
        self.helm.run(command, RELEASE, *options, values=values)

    def uninstall(self) -> None:
        """``helm uninstall``, if it is installed."""
        self.helm.run("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--ignore-not-found")

    def pods(self) -> dict[str, Json]:
        """The operator's pods that are not on their way out, by name."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io%2Fname%3Ddtj-operator"
        found = self.cluster.api.request("GET", path)["items"]
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def kill(self, pod: str) -> None:
        """End one of its pods at once, without letting it step down."""
        self.cluster.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--grace-period=0", "--force")

    def logs(self) -> str:
        """The last lines that its pods have printed."""
        return self.cluster.kubectl(
            "logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=dtj-operator", "--prefix", "--tail=30", check=False
        ).stdout
