"""TFJob of Kubeflow, whoever serves it."""

from conformance.adapters import JsonObject, chosen, template

API = "kubeflow.org/v1"
PLURAL = "tfjobs"
LABELS = ("training.kubeflow.org/job-name", "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index")
STATES = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Suspended": "suspended",
    "Restarting": "restarting",
    "Running": "running",
}
_ROLES = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}


def manifest(name: str, job: JsonObject) -> JsonObject:
    """The job."""
    port = {"ports": [{"name": "tfjob-port", "containerPort": job["port"]}]} if "port" in job else {}
    replica = {"template": template(job, "tensorflow", **port), **chosen(job, "restartPolicy")}
    limits = chosen(job, "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    managed = {"managedBy": "kueue.x-k8s.io/multikueue"} if "managedElsewhere" in job else {}
    return {
        "apiVersion": API,
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {
            "tfReplicaSpecs": {_ROLES.get(role, role): {"replicas": n, **replica} for role, n in job["roles"].items()},
            "runPolicy": {**limits, **chosen(job, "cleanPodPolicy", "suspend"), **managed},
            **chosen(job, "successPolicy"),
            **({"enableDynamicWorker": True} if "maxWorkers" in job else {}),
        },
    }
