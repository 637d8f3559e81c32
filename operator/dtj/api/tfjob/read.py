"""From a TFJob of Kubeflow to the spec that the planner reads. Pure.

Source: ``pkg/apis/kubeflow.org/v1/{tensorflow,common}_{types,defaults}.go`` of kubeflow/training-operator v1.9.4.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue, ValidationError

from dtj.api import names as dtj_names
from dtj.api.form import Reading
from dtj.api.json import JsonObject, dig, fields_of
from dtj.api.spec import MAX_REPLICAS, CleanPodPolicy, Gang, JobSpec, RestartScope, Role, Strategy, SuccessPolicy
from dtj.api.tfjob import names

ROLES: Final = {
    "chief": Role.CHIEF,
    names.MASTER: Role.CHIEF,
    "worker": Role.WORKER,
    "ps": Role.PS,
    "evaluator": Role.EVALUATOR,
}
"""The roles of a TFJob, which a manifest may spell in any case."""

STRATEGY: Final = f"{dtj_names.GROUP}/strategy"
"""An annotation that names the strategy where the roles do not show it."""

RESTART_SCOPE: Final = f"{dtj_names.GROUP}/restart-scope"
"""An annotation with a value of ``runPolicy.restartScope`` of a DistributedTrainingJob."""

ANNOTATIONS: Final = (STRATEGY, RESTART_SCOPE)

NO_LIMIT: Final = 1_000_000
"""A TFJob without backoffLimit starts again as often as it fails."""

_LARGEST: Final = {
    "backoffLimit": NO_LIMIT,
    "activeDeadlineSeconds": 2_147_483_647,
    "ttlSecondsAfterFinished": 2_147_483_647,
    "minAvailable": MAX_REPLICAS,
    "timeoutSeconds": 2_147_483_647,
}
"""The largest values of our fields. A TFJob may say more, by which it means that there is no limit."""

SAME: Final = ("suspend", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "cleanPodPolicy")
"""What the run policy calls the same on both sides, and means the same by."""


def has_master(spec: JsonObject) -> bool:
    """Whether the chief of this TFJob is spelled ``Master``."""
    return any(key.lower() == names.MASTER for key in fields_of(spec.get("tfReplicaSpecs")))


def spec_of(spec: JsonObject, annotations: JsonObject) -> Reading:
    """What a stored TFJob asks for; never raises. What it cannot say is as the TFJob's own operator has it."""
    given = fields_of(spec.get("tfReplicaSpecs"))
    keys = {ROLES.get(key.lower()): key for key in given}
    roles = {str(role): _role(dig(given, key)) for role, key in keys.items() if role is not None}
    policy = fields_of(spec.get("runPolicy"))
    run_policy: JsonObject = {
        "backoffLimit": NO_LIMIT,
        **{name: _at_most(name, policy[name]) for name in SAME if policy.get(name) is not None},
        **({"cleanPodPolicy": str(CleanPodPolicy.ALL)} if policy.get("cleanPodPolicy") == "" else {}),
        "scheduling": {"gang": str(Gang.NONE), **_scheduling(policy.get("schedulingPolicy"))},
    }
    # Kubeflow's operator asks for the policy where there is no chief: workers that serve a chief never complete.
    if spec.get("successPolicy") == SuccessPolicy.ALL_WORKERS and not roles.get(Role.CHIEF, {}).get("replicas"):
        run_policy["successPolicy"] = str(SuccessPolicy.ALL_WORKERS)
    if spec.get("enableDynamicWorker") is True:
        run_policy["restartScope"] = str(RestartScope.POD)
    if RESTART_SCOPE in annotations:
        run_policy["restartScope"] = annotations[RESTART_SCOPE]
    wanted: JsonObject = {
        "strategy": annotations.get(STRATEGY) or str(_strategy(roles)),
        "replicaSpecs": {**roles},
        "elastic": {"minReplicas": 1, "maxReplicas": MAX_REPLICAS},
        "runPolicy": run_policy,
    }
    try:
        return JobSpec.model_validate(wanted), ()
    except ValidationError as error:
        return None, tuple(f"{_place(problem['loc'], keys)}: {problem['msg']}" for problem in error.errors())


SCHEDULING: Final = {
    "minAvailable": "minAvailable",
    "queue": "queue",
    "priorityClass": "priorityClassName",
    "scheduleTimeoutSeconds": "timeoutSeconds",
}
"""What both sides say of the scheduling of a job: our name of each field of theirs."""


def _scheduling(given: JsonValue) -> JsonObject:
    """What a gang scheduler is told. ``minAvailable: 0`` is 1, by which no pod waits for another, either."""
    said = {ours: value for theirs, ours in SCHEDULING.items() if (value := dig(given, theirs))}
    if dig(given, "minAvailable") == 0:
        said["minAvailable"] = 1
    return {name: _at_most(name, value) for name, value in said.items()}


def _at_most(name: str, value: JsonValue) -> JsonValue:
    """The value of our field of this name; the largest that it may have, where more is asked for."""
    return min(value, _LARGEST[name]) if isinstance(value, int) and name in _LARGEST else value


def _role(given: JsonValue) -> JsonObject:
    """A role as the planner knows it. ``Always`` is ``OnFailure``: a kubelet would start a replica again without end,
    whatever ``backoffLimit`` says, while its peers wait for the process that is gone; and no job would ever succeed."""
    policy, replicas = dig(given, "restartPolicy"), dig(given, "replicas")
    template = dig(given, "template")
    return {
        "replicas": 1 if replicas is None else replicas,
        "restartPolicy": "OnFailure" if policy == "Always" else policy or "Never",
        "template": {
            **fields_of(template),
            "spec": {k: v for k, v in fields_of(dig(template, "spec")).items() if k != "restartPolicy"},
        },
    }


def _strategy(roles: dict[str, JsonObject]) -> Strategy:
    """The strategy that fits the roles: who starts again when a replica is lost depends on it."""
    counts = {role: count for role, given in roles.items() if isinstance(count := given["replicas"], int)}
    if counts.get(Role.PS):
        return Strategy.PARAMETER_SERVER
    several = counts.get(Role.CHIEF, 0) + counts.get(Role.WORKER, 0) > 1
    return Strategy.MULTI_WORKER_MIRRORED if several else Strategy.ONE_DEVICE


def _place(loc: tuple[int | str, ...], keys: dict[Role | None, str]) -> str:
    """A field of the TFJob, for a field that the planner knows by another name."""
    first, *rest = map(str, loc)
    if first == "strategy":
        return f"metadata.annotations[{STRATEGY}]"
    if (first, *rest) == ("runPolicy", "restartScope"):
        return f"metadata.annotations[{RESTART_SCOPE}]"
    if first == "replicaSpecs" and rest:
        key = next((key for role, key in keys.items() if role == rest[0]), rest[0])
        first, rest = f"tfReplicaSpecs.{key}", rest[1:]
    return ".".join(["spec", first, *rest])
