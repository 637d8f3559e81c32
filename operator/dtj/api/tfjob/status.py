"""The status of a TFJob: the operator's record, and the conditions, counts and times of Kubeflow that follow from it.

The record is in ``status.dtj``. All other fields are a function of it and of the conditions that are stored already,
and one patch writes both. A TFJob without a record is one that Kubeflow's training-operator has run: what it wrote is
read once, as the first attempt. Pure.

Source: ``pkg/util/status.go`` and ``pkg/controller.v1/{common/job,tensorflow/tfjob_controller}.go`` of
kubeflow/training-operator v1.9.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from dtj.api import names as dtj_names
from dtj.api.json import JsonObject, dig, fields_of, objects, text
from dtj.api.names import Reason, State
from dtj.api.status import MAX_CONDITION_MESSAGE, ConditionStatus, JobStatus, ReplicaStatus
from dtj.api.tfjob.names import KIND, RECORD, Condition

FIELDS: Final = frozenset((RECORD, "conditions", "replicaStatuses", "startTime", "completionTime", "lastReconcileTime"))

_ROLES: Final = {"worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}


def recorded(status: JsonObject) -> JobStatus:
    """What the operator recorded of a TFJob with this stored status, or what Kubeflow's operator left."""
    record = status.get(RECORD)
    return JobStatus.from_object(record) if isinstance(record, dict) else _adopted(status)


def _adopted(status: JsonObject) -> JobStatus:
    """A job that Kubeflow's operator ran: its pods are the first attempt, and an end stays an end."""
    found = _conditions(status)
    start, end = (text(status.get(name)) or None for name in ("startTime", "completionTime"))
    for kind, ours in (
        (Condition.SUCCEEDED, dtj_names.Condition.COMPLETE),
        (Condition.FAILED, dtj_names.Condition.FAILED),
    ):
        condition = found.get(kind, {})
        if condition.get("status") == "True":
            ended = ConditionStatus(
                type=ours,
                status="True",
                reason=Reason.JOB_FINISHED,
                message=text(condition.get("message"))[:MAX_CONDITION_MESSAGE],
                last_transition_time=text(condition.get("lastTransitionTime")),
            )
            return JobStatus(attempt=1, start_time=start, completion_time=end, conditions=(ended,))
    suspended = found.get(Condition.SUSPENDED, {}).get("status") == "True"
    return JobStatus(attempt=1, start_time=start) if start and not suspended else JobStatus()


def projected(namespace: str, name: str, before: JsonObject, record: JobStatus, *, chief: str) -> JsonObject:
    """The status of a TFJob with this record, in place of the stored status ``before``. ``chief`` is the task type of
    its chief."""
    # A suspended job keeps the time of its last start until it starts again.
    start = record.start_time or text(before.get("startTime"))
    times = {"startTime": start, "completionTime": record.completion_time}
    moment = max((condition.last_transition_time for condition in record.conditions), default="")
    roles = {**_ROLES, "chief": chief.capitalize()}
    counts: JsonObject = {
        roles.get(role, role): _counts(record, count, fields_of(dig(before, "replicaStatuses", roles.get(role, role))))
        for role, count in record.replica_statuses.items()
    }
    return {
        RECORD: record.to_object(),
        "conditions": _conditions_after(_conditions(before), _holding(namespace, name, record), name, moment),
        "replicaStatuses": counts,
        **{field: time for field, time in times.items() if time},
        **({"lastReconcileTime": moment} if moment else {}),
    }


def _counts(record: JobStatus, count: ReplicaStatus, before: JsonObject) -> JsonObject:
    """The counts of a role, where the stored ones are ``before``.

    Workflows compare them with numbers (``status.replicaStatuses.Worker.failed > 0``). So a replica that starts again
    has not failed, as where a kubelet restarts its container, and a job that ends goes on counting the pods that
    clean-up deletes. A replica that goes on when the job succeeds has succeeded.
    """
    active = count.active + count.terminating
    if not _ends(record):
        return {"active": active, "succeeded": count.succeeded, "failed": 0 if _restarts(record) else count.failed}
    was_active, was_done, was_failed = (_number(before, field) for field in ("active", "succeeded", "failed"))
    failed = max(count.failed, min(was_failed, count.desired))
    if not _succeeds(record):
        return {"active": active, "succeeded": count.succeeded, "failed": failed}
    # No more than there are: pods of earlier attempts may still stop.
    done = min(max(count.succeeded + active, was_done + was_active), count.desired - failed)
    active = 0 if record.is_true(dtj_names.Condition.COMPLETE) else active
    return {"active": active, "succeeded": max(count.succeeded, done - active), "failed": failed}


def _number(counts: JsonObject, field: str) -> int:
    value = counts.get(field)
    return value if isinstance(value, int) else 0


@dataclass(frozen=True, slots=True)
class _Says:
    """What a condition says; its reason without the kind that comes before."""

    status: str
    reason: str
    message: str


def _holding(namespace: str, name: str, record: JobStatus) -> tuple[Condition, _Says]:
    """The condition that holds now. The messages of Kubeflow are kept to the letter: tests read them."""
    kinds = dtj_names.Condition
    ours = {condition.type: condition.message for condition in record.conditions if condition.status == "True"}
    if kinds.COMPLETE in ours:
        return _true(Condition.SUCCEEDED, f"{KIND} {namespace}/{name} successfully completed.")
    if kinds.FAILED in ours:
        return _true(Condition.FAILED, ours[kinds.FAILED])
    if kinds.INVALID in ours and _never_began(record):
        return Condition.FAILED, _Says("True", "FailedValidation", ours[kinds.INVALID])
    if kinds.SUSPENDED in ours:
        return _true(Condition.SUSPENDED, f"{KIND} {name} is suspended.")
    ready = record.condition(kinds.PODS_READY)
    if _restarts(record):
        return _true(Condition.RESTARTING, ours.get(kinds.RESTARTING) or (ready.message if ready is not None else ""))
    if record.state == State.RUNNING:
        return _true(Condition.RUNNING, f"{KIND} {namespace}/{name} is running.")
    obstacle = ready.message if ready is not None and ready.reason not in _NO_OBSTACLES else ""
    return _true(Condition.CREATED, ours.get(kinds.INVALID) or obstacle or f"{KIND} {name} is created.")


def _never_began(record: JobStatus) -> bool:
    """Whether the manifest of an invalid job breaks a rule, and kept it from beginning."""
    invalid = record.condition(dtj_names.Condition.INVALID)
    return invalid is not None and invalid.reason == Reason.INVALID_SPEC and not record.start_time


def _restarts(record: JobStatus) -> bool:
    """Whether all replicas start again; or some alone, of a job that does not end."""
    alone = record.state == State.RUNNING and any(map(_starts_again, record.replica_statuses.values()))
    return record.state == State.RESTARTING or (alone and not _ends(record))


def _ends(record: JobStatus) -> bool:
    """Whether the outcome of the job is decided; pods may still have to stop."""
    kinds = dtj_names.Condition
    return _succeeds(record) or record.is_true(kinds.FAILURE_TARGET) or record.is_true(kinds.FAILED)


def _succeeds(record: JobStatus) -> bool:
    kinds = dtj_names.Condition
    return record.is_true(kinds.SUCCESS_CRITERIA_MET) or record.is_true(kinds.COMPLETE)


def _starts_again(role: ReplicaStatus) -> bool:
    """Whether a replica that was lost alone has no pod yet that is ready."""
    return bool(role.restarting or (role.replaced_indexes and role.ready + role.succeeded < role.desired))


def _true(kind: Condition, message: str) -> tuple[Condition, _Says]:
    return kind, _Says("True", kind, message)


_NO_OBSTACLES: Final = (Reason.WAITING_FOR_PODS, Reason.ALL_PODS_READY, Reason.NEW_ATTEMPT, Reason.PENDING)
"""Reasons of the condition PodsReady that are no news to somebody who waits."""


def _conditions_after(
    found: dict[str, JsonObject], now: tuple[Condition, _Says], name: str, moment: str
) -> list[JsonValue]:
    """The conditions once this one holds. It is the last of the list, which the column State shows."""
    holds, says = now
    wanted = {Condition.CREATED: _Says("True", Condition.CREATED, f"{KIND} {name} is created.")}
    if Condition.SUSPENDED in found:
        wanted[Condition.SUSPENDED] = _Says("False", "Resumed", f"{KIND} {name} is resumed.")
    if Condition.RUNNING in found and holds is not Condition.RESTARTING:
        wanted[Condition.RUNNING] = _Says("False", says.reason, says.message)
    wanted.pop(holds, None)
    wanted[holds] = says
    return [_condition(kind, wanted[kind], found.get(kind, {}), moment) for kind in wanted]


def _condition(kind: Condition, says: _Says, before: JsonObject, moment: str) -> JsonObject:
    """A condition as it is stored; its transition time moves with its status alone."""
    wanted: JsonObject = {
        "type": str(kind),
        "status": says.status,
        "reason": f"{KIND}{says.reason}",
        "message": says.message,
    }
    if all(before.get(field) == value for field, value in wanted.items()):
        return before
    moved = before.get("status") != says.status
    return {
        **wanted,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment if moved else before.get("lastTransitionTime") or moment,
    }


def _conditions(status: JsonObject) -> dict[str, JsonObject]:
    return {text(condition.get("type")): condition for condition in objects(status.get("conditions"))}
