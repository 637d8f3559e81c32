"""TFJobs that are refused, each under a sentence that says why, with the line that its user reads; and TFJobs that look
as if they were. Used offline and on a real API server."""

from __future__ import annotations

from dtj.api.json import JsonObject


def container(name: str = "tensorflow", **fields: object) -> JsonObject:
    """A container as a role of a TFJob has it."""
    return {"name": name, "image": "example/mnist:1", **fields}  # type: ignore[dict-item]


def role(replicas: int | None = 1, *containers: JsonObject, **fields: object) -> JsonObject:
    """A role of a TFJob."""
    template: JsonObject = {"spec": {"containers": [*(containers or (container(),))]}}
    number: JsonObject = {} if replicas is None else {"replicas": replicas}
    return {**number, "template": template, **fields}  # type: ignore[dict-item]


def tfjob(
    name: str = "mnist", *, run_policy: JsonObject | None = None, spec: object = None, **roles: object
) -> JsonObject:
    """A TFJob with these roles; of one worker where none is named."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {
            "tfReplicaSpecs": roles or {"Worker": role()},  # type: ignore[dict-item]
            **({"runPolicy": run_policy} if run_policy is not None else {}),
            **(spec if isinstance(spec, dict) else {}),
        },
    }


_OWN_CONFIG = [{"name": "TF_CONFIG", "value": "{}"}]
_NO_HOST = "becomes a host name: begin with a letter and use only lower-case letters, digits and '-'"
_KNOWN = "is not a role of a TFJob: use Chief, Worker, PS or Evaluator"
_TWICE = "one role is there twice (Master is Chief, and upper and lower case do not count): remove one of both"
_NO_MAIN = "no container is named tensorflow: give that name to the one that trains"
_NOBODY = "spec.tfReplicaSpecs: no replica trains: set replicas of Worker or Chief to 1 or more"
_SERVICE = "would be the name of a Service, which has at most 63 characters: shorten the name of the job"
_CONTAINERS = "template.spec.containers"

REFUSED: dict[str, tuple[JsonObject, str]] = {
    "the name begins with a digit": (
        tfjob("00test"),
        f"metadata.name: 00test {_NO_HOST}",
    ),
    "the name has a dot": (
        tfjob("mnist.v2"),
        f"metadata.name: mnist.v2 {_NO_HOST}",
    ),
    "the name is too long for its last worker": (
        tfjob("m" * 54, Worker=role(11)),
        f"spec.tfReplicaSpecs.Worker: {'m' * 54}-worker-10 {_SERVICE}",
    ),
    "a role that is none": (
        tfjob(Worker=role(), Trainer=role()),
        f"spec.tfReplicaSpecs.Trainer: {_KNOWN}",
    ),
    "no role": (tfjob(spec={"tfReplicaSpecs": {}}), _NOBODY),
    "a null role": (
        tfjob(Worker=role(), PS=None),
        f"spec.tfReplicaSpecs.PS.{_CONTAINERS}: {_NO_MAIN}",
    ),
    "a role twice": (tfjob(Worker=role(), worker=role()), f"spec.tfReplicaSpecs: {_TWICE}"),
    "a chief and a master": (tfjob(Chief=role(), master=role()), f"spec.tfReplicaSpecs: {_TWICE}"),
    "no replica": (tfjob(Worker=role(0)), _NOBODY),
    "nothing but parameter servers": (tfjob(PS=role(2)), _NOBODY),
    "nothing but an evaluator": (tfjob(Evaluator=role()), _NOBODY),
    "fewer than no replica": (
        tfjob(Chief=role(), Worker=role(-1)),
        "spec.tfReplicaSpecs.Worker.replicas: -1 is too small: set it to 0 or more, or remove it",
    ),
    "two chiefs": (
        tfjob(Chief=role(2)),
        "spec.tfReplicaSpecs.Chief.replicas: 2 is more than TensorFlow knows of this role: set it to 1",
    ),
    "three masters": (
        tfjob(master=role(3)),
        "spec.tfReplicaSpecs.master.replicas: 3 is more than TensorFlow knows of this role: set it to 1",
    ),
    "two evaluators": (
        tfjob(Worker=role(), Evaluator=role(2)),
        "spec.tfReplicaSpecs.Evaluator.replicas: 2 is more than TensorFlow knows of this role: set it to 1",
    ),
    "a restart policy that is none": (
        tfjob(Worker=role(restartPolicy="OnError")),
        'spec.tfReplicaSpecs.Worker.restartPolicy: "OnError" is unknown: use Always, OnFailure, ExitCode or Never, '
        "or remove it",
    ),
    "a role without a template": (
        tfjob(Worker={"replicas": 1}),
        f"spec.tfReplicaSpecs.Worker.{_CONTAINERS}: {_NO_MAIN}",
    ),
    "a role without a container": (
        tfjob(Worker={"template": {"spec": {"containers": []}}}),
        f"spec.tfReplicaSpecs.Worker.{_CONTAINERS}: {_NO_MAIN}",
    ),
    "no container is tensorflow": (
        tfjob(Worker=role(1, container("pytorch"))),
        f"spec.tfReplicaSpecs.Worker.{_CONTAINERS}: {_NO_MAIN}",
    ),
    "a container without an image": (
        tfjob(Worker=role(1, container(), {"name": "sidecar"})),
        f"spec.tfReplicaSpecs.Worker.{_CONTAINERS}: sidecar has no image: name one",
    ),
    "a container with an empty image": (
        tfjob(Worker=role(1, container(image=""))),
        f"spec.tfReplicaSpecs.Worker.{_CONTAINERS}: tensorflow has no image: name one",
    ),
    "a port that is none": (
        tfjob(Worker=role(1, container(ports=[{"containerPort": 80}, {"name": "tfjob-port", "containerPort": 65536}]))),
        f"spec.tfReplicaSpecs.Worker.{_CONTAINERS}: containerPort 65536 is no port: use 1 to 65535",
    ),
    "a TF_CONFIG of its own in a job of several replicas": (
        tfjob(Chief=role(), Worker=role(1, container(env=_OWN_CONFIG))),
        f"spec.tfReplicaSpecs.Worker.{_CONTAINERS}: TF_CONFIG is set by the operator in a job of several replicas: "
        "remove it",
    ),
    "a success policy that is none": (
        tfjob(spec={"successPolicy": "AnyWorker"}),
        'spec.successPolicy: "AnyWorker" is unknown: use AllWorkers, or remove it',
    ),
    "a clean-up policy that is none": (
        tfjob(run_policy={"cleanPodPolicy": "running"}),
        'spec.runPolicy.cleanPodPolicy: "running" is unknown: use Running, All or None, or remove it',
    ),
    "a controller that is none": (
        tfjob(run_policy={"managedBy": "other-job-controller"}),
        'spec.runPolicy.managedBy: "other-job-controller" is unknown: use kubeflow.org/training-operator or '
        "kueue.x-k8s.io/multikueue, or remove it",
    ),
    "no time at all": (
        tfjob(run_policy={"activeDeadlineSeconds": 0}),
        "spec.runPolicy.activeDeadlineSeconds: 0 is too small: set it to 1 or more, or remove it",
    ),
    "fewer restarts than none": (
        tfjob(run_policy={"backoffLimit": -1}),
        "spec.runPolicy.backoffLimit: -1 is too small: set it to 0 or more, or remove it",
    ),
    "gone before it ends": (
        tfjob(run_policy={"ttlSecondsAfterFinished": -1}),
        "spec.runPolicy.ttlSecondsAfterFinished: -1 is too small: set it to 0 or more, or remove it",
    ),
    "a gang of fewer than none": (
        tfjob(run_policy={"schedulingPolicy": {"minAvailable": -1}}),
        "spec.runPolicy.schedulingPolicy.minAvailable: -1 is too small: set it to 0 or more, or remove it",
    ),
    "less time to be scheduled than none": (
        tfjob(run_policy={"schedulingPolicy": {"scheduleTimeoutSeconds": -5}}),
        "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds: -5 is too small: set it to 0 or more, or remove it",
    ),
}

ACCEPTED: dict[str, JsonObject] = {
    "one worker without a number": tfjob(Worker=role(None)),
    "roles in any case": tfjob(WORKER=role(2), ps=role(), evaluator=role()),
    "a master": tfjob(Master=role(), Worker=role(2)),
    "a role without replicas beside one that trains": tfjob(Chief=role(), Worker=role(0), Evaluator=role(0)),
    "the longest name": tfjob("m" * 54, Worker=role(10)),
    "a longer name of a role that has no replica": tfjob("m" * 54, Worker=role(), Evaluator=role(0)),
    "a TF_CONFIG of its own in a job of one replica": tfjob(Worker=role(1, container(env=_OWN_CONFIG))),
    "one replica beside roles that have none": tfjob(PS=role(0), Worker=role(1, container(env=_OWN_CONFIG))),
    "a TF_CONFIG of a sidecar": tfjob(Worker=role(2, container(), container("sidecar", env=_OWN_CONFIG))),
    "each restart policy": tfjob(
        Chief=role(restartPolicy="Always"),
        Worker=role(restartPolicy="ExitCode"),
        PS=role(restartPolicy="OnFailure"),
        Evaluator=role(restartPolicy=""),
    ),
    "a restart policy in the template": tfjob(
        Worker={"template": {"spec": {"containers": [container()], "restartPolicy": "Always"}}}
    ),
    "more pods wanted at once than there are": tfjob(run_policy={"schedulingPolicy": {"minAvailable": 10}}),
    "the smallest numbers": tfjob(
        run_policy={"activeDeadlineSeconds": 1, "backoffLimit": 0, "ttlSecondsAfterFinished": 0}
    ),
    "empty policies": tfjob(run_policy={"cleanPodPolicy": ""}, spec={"successPolicy": "", "enableDynamicWorker": True}),
    "left to MultiKueue": tfjob(run_policy={"managedBy": "kueue.x-k8s.io/multikueue"}),
    "all workers": tfjob(spec={"successPolicy": "AllWorkers"}, Worker=role(3)),
    "any port": tfjob(Worker=role(1, container(ports=[{"containerPort": 1}, {"containerPort": 65535}]))),
}
