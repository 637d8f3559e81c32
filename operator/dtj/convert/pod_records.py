"""A pod of the API server as the planner sees it. The operator, its clients and reports read a pod here alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from dtj.api.job import parse_time
from dtj.api.names import Label
from dtj.core.blockers import WaitingContainer, blocker_of
from dtj.core.observed import Phase, Pod, Termination
from dtj.kube.records import PodRecord

_PHASES: Final = {str(phase): phase for phase in Phase}


def pod_from(record: PodRecord) -> Pod:
    """A pod as the planner sees it."""
    metadata, status = record.metadata, record.status
    main = record.main_container
    phase = _PHASES.get(status.phase, Phase.PENDING)
    end = _termination(record, main, phase)
    return Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner_uid=metadata.owner_uid,
        job_name=metadata.label(Label.JOB_NAME),
        role=metadata.label(Label.ROLE),
        index=_number(metadata.label(Label.INDEX), default=-1),
        attempt=_number(metadata.label(Label.ATTEMPT), default=1),
        phase=phase,
        ready=record.ready,
        terminating=metadata.deletion_timestamp is not None,
        deletion_requested_at=_deletion_requested_at(record, ended_at=end.finished_at if end else None),
        deletion_due=parse_time(metadata.deletion_timestamp),
        disrupted=record.has_condition("DisruptionTarget"),
        node=record.spec.node_name,
        ip=status.pod_ip,
        reason=status.reason,
        message=status.message,
        termination=end,
        sidecars=phase not in (Phase.SUCCEEDED, Phase.FAILED) and record.sidecars,
        probed=record.probed,
        blocker=blocker_of(
            unschedulable=record.unschedulable,
            waiting=(WaitingContainer(name, waiting.reason, waiting.message) for name, waiting in record.waiting),
            main_container=main,
        ),
        created_at=parse_time(metadata.creation_timestamp),
    )


def _termination(record: PodRecord, main: str, phase: Phase) -> Termination | None:
    """How the main container ended; where it never started, how the init container did that kept it from it."""
    end, init = record.termination(main), ""
    if end is None and phase is Phase.FAILED and record.failed_init_container is not None:
        init, end = record.failed_init_container
    if end is None:
        return None
    return Termination(
        exit_code=end.exit_code,
        signal=end.signal,
        reason=end.reason,
        message=end.message,
        started_at=parse_time(end.started_at),
        finished_at=parse_time(end.finished_at),
        init_container=init,
    )


_KUBELETS_MARGIN: Final = timedelta(seconds=60)
"""How long after the end of a pod's grace period its kubelet has deleted the object, as a rule."""


def _deletion_requested_at(record: PodRecord, *, ended_at: datetime | None) -> datetime | None:
    """A deletion's timestamp is when its grace period ends.

    A kubelet that has ended a pod deletes it again with a grace period of 0, which moves the timestamp: when it was
    asked to stop is not known any more, but it was before it ended. The API server also gives a pod that had ended
    before a grace period of 0; such a pod stays where it has a finalizer, and was not asked to stop while it ran.
    (kubernetes: staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go, pkg/registry/core/pod/strategy.go)
    """
    metadata = record.metadata
    ends = parse_time(metadata.deletion_timestamp)
    if ends is None:
        return None
    requested = ends - timedelta(seconds=metadata.deletion_grace_period_seconds or 0)
    if metadata.deletion_grace_period_seconds != 0 or ended_at is None:
        return requested
    grace = timedelta(seconds=min(max(record.spec.termination_grace_period_seconds or 0, 0), _LONGEST_GRACE))
    return min(requested, ended_at) if requested - ended_at <= grace + _KUBELETS_MARGIN else requested


_LONGEST_GRACE: Final = 10**8
"""Seconds that a timedelta holds with ease."""


def _number(label: str, *, default: int) -> int:
    return int(label) if label.isdecimal() else default
