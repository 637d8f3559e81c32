"""What a cluster has of Kubeflow's training-operator."""

from __future__ import annotations

from pydantic import JsonValue

from dtj.api.json import JsonObject


def training_operator(
    namespace: str = "kubeflow",
    *,
    labels: JsonValue = None,
    replicas: int = 1,
    image: str = "ghcr.io/kubeflow/training-v1/training-operator:v1.9.4",
    **container: JsonValue,
) -> JsonObject:
    """Its Deployment, as its manifests write it, or changed."""
    selected: JsonObject = {"app": "training-operator"}
    main: JsonObject = {"name": "training-operator", "image": image, "command": ["/manager"], **container}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "training-operator", "namespace": namespace, "labels": labels or {}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": selected}, "spec": {"containers": [main]}},
        },
    }
