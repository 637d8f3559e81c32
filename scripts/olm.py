"""Builds the bundle from which Operator Lifecycle Manager (OLM), of OpenShift and OperatorHub, installs the operator.

It holds what helm renders of the chart, without what OLM makes by itself. `scripts/release_build.py --repository` calls
this. The same tree gives the same bytes.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import release
import yaml

CRD: Final = "crds/distributedtrainingjobs.yaml"
ICON: Final = "docs/images/icon.svg"

CHANNEL: Final = "candidate"
"""OLM's word for versions that are not called stable yet."""

NAMESPACE: Final = "$(POD_NAMESPACE)"
"""What the chart is rendered for: users of OLM choose the namespace, and the kubelet puts it into the arguments."""

VALUES: Final = {
    "crds": {"enabled": False},  # the bundle has the file of the checkout, without helm's annotation
    "networkPolicy": {"enabled": False},  # OLM of before 2025 refuses the kind; jobs keep theirs
    # OpenShift chooses a user for each namespace and refuses others. Elsewhere it is the one that the image names.
    "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
    "rbac": {"blockOwnerDeletion": True},  # OpenShift enforces it
}
"""What differs from the chart's defaults."""

_MADE_BY_OLM: Final = {"Deployment", "ServiceAccount", "RoleBinding", "ClusterRoleBinding"}
_OF_HELM: Final = {"app.kubernetes.io/managed-by", "helm.sh/chart"}


def build(package: Path, *, helm: str, repository: str, root: Path) -> Path:
    """Writes the bundle beside the package of the chart. Raises ReleaseError."""
    chart = yaml.safe_load((root / "charts" / "dtj" / "Chart.yaml").read_text())
    objects = _rendered(package, helm)
    bound = {body["roleRef"]["name"] for body in objects if body["kind"].endswith("RoleBinding")}
    icon = base64.b64encode((root / ICON).read_bytes()).decode()
    service_version = _service_version(chart, objects, bound, repository=repository, icon=icon)
    files = {
        "manifests/dtj.clusterserviceversion.yaml": _yaml(service_version),
        f"manifests/{Path(CRD).name}": (root / CRD).read_bytes(),
    }
    for body in objects:
        kind, name = body["kind"], body["metadata"]["name"]
        if kind not in _MADE_BY_OLM and name not in bound:
            name = name.removeprefix(f"{NAMESPACE}-")
            body["metadata"] = {"name": name, "labels": _labels(body)}
            files[f"manifests/{name}.{kind.lower()}.yaml"] = _yaml(body)
    metadata = {
        "mediatype": "registry+v1",
        "manifests": "manifests/",
        "metadata": "metadata/",
        "package": chart["name"],
        "channels": CHANNEL,
        "channel.default": CHANNEL,
    }
    annotations = {f"operators.operatorframework.io.bundle.{key}.v1": value for key, value in metadata.items()}
    files["metadata/annotations.yaml"] = _yaml({"annotations": annotations})
    labels = "".join(f"LABEL {key}={value}\n" for key, value in annotations.items())
    copies = "COPY manifests /manifests/\nCOPY metadata /metadata/\n"
    files["bundle.Dockerfile"] = f"FROM scratch\n{labels}{copies}".encode()
    bundle = package.with_name(f"dtj-bundle-{chart['version']}.tar.gz")
    bundle.write_bytes(release.pack(files))
    return bundle


def _rendered(package: Path, helm: str) -> list[dict[str, Any]]:
    command = [helm, "template", "dtj", str(package), f"--namespace={NAMESPACE}", "--skip-tests", "--values=-"]
    try:
        done = subprocess.run(command, input=json.dumps(VALUES), capture_output=True, text=True, check=False)
    except OSError as error:
        raise release.ReleaseError(f"{helm}: {error.strerror}; install helm, which renders the bundle") from error
    if done.returncode:
        raise release.ReleaseError(f"helm template: {done.stderr.strip()}")
    return [body for body in yaml.safe_load_all(done.stdout) if body]


def _service_version(
    chart: Mapping[str, Any], objects: Sequence[dict[str, Any]], bound: set[str], *, repository: str, icon: str
) -> dict[str, Any]:
    """The ClusterServiceVersion, which tells OLM what to install and users what it is."""
    (deployment,) = (body for body in objects if body["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    template["metadata"]["labels"] = _labels(template)
    (container,) = template["spec"]["containers"]
    own_namespace = {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    container["env"] = [own_namespace, *container.get("env", ())]
    (trainer,) = (word.partition("=")[2] for word in container["args"] if word.startswith("--trainer-image="))
    images = {"operator": container["image"], "trainer": trainer}
    deployed = {"name": deployment["metadata"]["name"], "label": _labels(deployment), "spec": deployment["spec"]}

    def permissions(kind: str) -> list[dict[str, Any]]:
        account = template["spec"]["serviceAccountName"]
        roles = [body for body in objects if body["kind"] == kind and body["metadata"]["name"] in bound]
        return [{"serviceAccountName": account, "rules": role["rules"]} for role in roles]

    version, owner = chart["version"], repository.rpartition("/")[0]
    about = chart["annotations"]
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{chart['name']}.v{version}",
            "annotations": {
                "alm-examples": json.dumps(yaml.safe_load(about["artifacthub.io/crdsExamples"])),
                "capabilities": "Basic Install",
                "categories": "AI/Machine Learning",
                "containerImage": container["image"],
                "description": chart["description"],
                "repository": repository,
            },
        },
        "spec": {
            "displayName": chart["name"],
            "description": chart["description"],
            "version": version,
            "minKubeVersion": chart["kubeVersion"].removeprefix(">=").partition("-")[0],
            "keywords": chart["keywords"],
            "icon": [{"base64data": icon, "mediatype": "image/svg+xml"}],
            "provider": {"name": owner.rpartition("/")[2], "url": owner},
            "links": [
                {"name": "Repository", "url": repository},
                {"name": "Documents", "url": f"{repository}/blob/v{version}/docs/index.md"},
            ],
            "relatedImages": [{"name": name, "image": image} for name, image in images.items()],
            "customresourcedefinitions": {"owned": yaml.safe_load(about["artifacthub.io/crds"])},
            # The rights and the argument --all-namespaces cannot follow another choice of OLM's users.
            "installModes": [{"type": "AllNamespaces", "supported": True}],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [deployed],
                    "permissions": permissions("Role"),
                    "clusterPermissions": permissions("ClusterRole"),
                },
            },
        },
    }


def _labels(body: Mapping[str, Any]) -> dict[str, str]:
    """The labels of an object, without those that say that helm has installed it."""
    return {key: value for key, value in body["metadata"]["labels"].items() if key not in _OF_HELM}


def _yaml(body: Mapping[str, Any]) -> bytes:
    return yaml.safe_dump(body, sort_keys=False, width=120).encode()
