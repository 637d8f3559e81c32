"""What a test may ask of a cluster, whichever it is: the testbed's own, kind's, or the one at hand."""

import json
import os
import subprocess
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import KubectlError
from testbed.processes import wait_until
from testbed.rest import Json, RestClient

CRDS = Path(__file__).parent.parent.parent / "crds"


@dataclass(frozen=True, kw_only=True)
class Image:
    """A container image that was built here: in `archive`, or where that is None, in Docker."""

    name: str
    archive: Path | None = None


class Cluster(ABC):
    """A Kubernetes cluster, as its administrator uses it."""

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""

    @property
    @abstractmethod
    def kubectl_path(self) -> Path:
        """The program kubectl."""

    @property
    @abstractmethod
    def api(self) -> RestClient:
        """The API server, as the administrator."""

    @abstractmethod
    def load_image(self, image: Image) -> None:
        """Put an image onto the nodes, so that pods can be made of it; with imagePullPolicy IfNotPresent or Never."""

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator. Raises `KubectlError` on failure if `check`."""
        home = {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.kubeconfig.with_name("kubectl"))}
        done = subprocess.run(
            [self.kubectl_path, *arguments],
            input=stdin,
            env=os.environ | home,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if check and done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done

    def install_crds(self, directory: Path = CRDS, *, server_side: bool = False) -> None:
        """`kubectl apply` the manifests of a directory, if it has any, and wait until their resources are served.

        ``server_side`` is for those that are too large for the annotation of a plain `kubectl apply`.
        Raises `KubectlError` with the API server's own words where it refuses one.
        """
        if not any(directory.glob("*.y*ml")):
            return
        how = ("--server-side",) if server_side else ()
        self.kubectl("apply", *how, "--filename", str(directory))
        wait_until(lambda: self._are_established(directory), what="the custom resources to be served")

    def apply(self, *bodies: Json) -> None:
        """Make or change objects that several tests may make at the same time, such as those of no namespace.

        A plain `kubectl apply` reads first and then creates: of two at the same time, one is refused.
        """
        everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
        self.kubectl("apply", "--server-side", "--filename", "-", stdin=everything)

    def new_namespace(self, prefix: str = "test") -> str:
        """Make a namespace with a unique name, in which pods can be made: its default service account exists."""
        name = f"{prefix}-{uuid.uuid4().hex[:10]}"
        self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        wait_until(lambda: self.has_service_account(name), what=f"the service account of {name}")
        return name

    def delete_namespace(self, name: str) -> None:
        """Ask for the deletion of a namespace; do not wait for it."""
        self.api.request("DELETE", f"/api/v1/namespaces/{name}")

    def grant(self, user: str, rules: Sequence[Json], *, namespace: str = "", name: str = "") -> None:
        """Give a user rights in a namespace, or in the whole cluster if none is given, by a role of the user's name or
        of another."""
        group, kind = "rbac.authorization.k8s.io", "Role" if namespace else "ClusterRole"
        path = f"/apis/{group}/v1/{f'namespaces/{namespace}/' if namespace else ''}{kind.lower()}"
        metadata = {"name": name or user}
        self.api.request("POST", f"{path}s", {"metadata": metadata, "rules": rules})
        role = {"apiGroup": group, "kind": kind, **metadata}
        subject = {"apiGroup": group, "kind": "User", "name": user}
        self.api.request("POST", f"{path}bindings", {"metadata": metadata, "roleRef": role, "subjects": [subject]})

    def nodes_are_ready(self) -> bool:
        """Whether all nodes are ready, and the node controller knows."""
        nodes: list[Json] = self.api.request("GET", "/api/v1/nodes")["items"]
        return bool(nodes) and all(map(_is_ready, nodes))

    def has_service_account(self, namespace: str) -> bool:
        """Whether pods can be made in a namespace: its default service account exists."""
        return self.api.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/default") is not None

    def _are_established(self, directory: Path) -> bool:
        """`kubectl wait` fails on a definition that has no conditions yet, so the conditions are read instead."""
        states = self.kubectl(
            "get",
            "--filename",
            str(directory),
            "--output",
            "jsonpath={.status.conditions}{.items[*].status.conditions}",
        ).stdout
        return states.count('"status":"True","type":"Established"') == len(list(directory.glob("*.y*ml")))


def _is_ready(node: Json) -> bool:
    """Whether a node is ready, and no longer tainted for having been not ready."""
    conditions = node["status"].get("conditions", ())
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return ready and "node.kubernetes.io/not-ready" not in taints
