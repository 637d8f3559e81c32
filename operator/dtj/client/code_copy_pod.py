"""The pod that copies code onto a claim: the init container that unpacks, with the claim to write to. Pure."""

from __future__ import annotations

import copy
import secrets
from typing import Final

from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Label
from dtj.client.code_manifest import MANAGER, JobWithCodeOnClaim, unpack_container
from dtj.client.pod_programs import RECEIVE_CODE
from dtj.core.manifests.pod import apply_security
from dtj.core.pod_state import main_container

PORT: Final = 7070
"""Of the pod's loopback address: ``pods/portforward`` alone reaches it."""

DEADLINE_SECONDS: Final = 1800
"""The pod ends after this time, also if the program that created it was killed."""

_MOUNT: Final = "/dtj/claim"
_CONTAINER: Final = "dtj-copy-code"

_OF_THE_TEMPLATE: Final = (
    "nodeSelector",
    "tolerations",
    "imagePullSecrets",
    "serviceAccountName",
    "securityContext",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
)
"""What decides where a pod runs, whether it may pull the image, and as which user it writes."""


def copy_pod(job: JobWithCodeOnClaim, *, restricted: bool = False) -> JsonObject:
    """The pod, with a name of its own. ``restricted`` adds what the Pod Security Standard of that name asks for."""
    template = _pod_spec(job.manifest.body)
    pack = job.pack
    command = ["python3", "-c", RECEIVE_CODE]
    arguments = [_MOUNT, job.claim.path_of(pack.digest), pack.digest, str(len(pack.archive)), str(PORT)]
    container = unpack_container(main_container(template), [*command, *arguments])
    container |= {
        "name": _CONTAINER,
        "volumeMounts": [{"name": "claim", "mountPath": _MOUNT}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    object_at(container, "securityContext").setdefault("capabilities", {"drop": ["ALL"]})
    pod_spec: JsonObject = {
        **{name: copy.deepcopy(template[name]) for name in _OF_THE_TEMPLATE if name in template},
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE_SECONDS,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": job.claim.name}}],
    }
    apply_security(pod_spec, restricted=restricted)
    labels: JsonObject = {Label.APP_MANAGED_BY: MANAGER, Label.APP_PART_OF: job.manifest.job.name}
    name = f"{_CONTAINER}-{pack.digest[:10]}-{secrets.token_hex(3)}"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": pod_spec}


def _pod_spec(job: JsonObject) -> JsonObject:
    """That of the shared template if a role uses it, else that of the first role."""
    found = dig(job, "spec", "replicaSpecs")
    roles = [role for role in found.values() if isinstance(role, dict)] if isinstance(found, dict) else []
    own = [template for role in roles if isinstance(template := role.get("template"), dict)]
    shared = dig(job, "spec", "template")
    chosen = shared if isinstance(shared, dict) and len(own) < len(roles) else own[0]
    return object_at(chosen, "spec")
