"""DistributedTrainingJob."""

from conformance.adapters import JsonObject, chosen, template

API = "training.dtj.dev/v1alpha1"
PLURAL = "distributedtrainingjobs"
LABELS = ("training.dtj.dev/job-name", "training.dtj.dev/role", "training.dtj.dev/index")
STATES = {
    "Complete": "succeeded",
    "Failed": "failed",
    "Invalid": "invalid",
    "Suspended": "suspended",
    "Restarting": "restarting",
    "PodsReady": "running",
}


def manifest(name: str, job: JsonObject) -> JsonObject:
    """The job; its strategy follows from its roles."""
    roles, policy = job["roles"], chosen(job, "restartPolicy")
    several = roles.get("chief", 0) + roles.get("worker", 0) > 1
    limits = chosen(job, "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
    return {
        "apiVersion": API,
        "kind": "DistributedTrainingJob",
        "metadata": {"name": name},
        "spec": {
            "strategy": "ParameterServer" if "ps" in roles else "MultiWorkerMirrored" if several else "OneDevice",
            "replicaSpecs": {role: {"replicas": count, **policy} for role, count in roles.items()},
            "template": template(job, "trainer"),
            "runPolicy": {**limits, **chosen(job, "cleanPodPolicy", "successPolicy", "suspend")},
            **chosen(job, "port"),
            **({"elastic": {"maxReplicas": job["maxWorkers"]}} if "maxWorkers" in job else {}),
            **({"managedBy": "example.com/another"} if "managedElsewhere" in job else {}),
        },
    }
