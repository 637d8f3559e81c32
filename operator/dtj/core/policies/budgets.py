"""Which budget pays for a restart, and whether there is anything left of it.

An error of the program is paid by ``backoffLimit``; what the infrastructure did by ``disruptionLimit``, except a
preemption, which has no limit. Counters are in the status, and are written before any pod is touched: an operator that
is killed in between neither forgets a restart nor counts one twice.
"""

from __future__ import annotations

from dtj.api.form import EXIT_CODES_OF_ERRORS
from dtj.api.names import Reason
from dtj.api.spec import ExitCodes, JobSpec, ReplicaSpec, RestartPolicy
from dtj.api.status import JobStatus, ReplicaStatus, RestartCounts, RootCause
from dtj.core.outcome import Failure, how_it_failed, root_cause
from dtj.core.pod_failure import PodEnd, PodFailureClass


def restart_denied(
    spec: JobSpec, status: JobStatus, ended: PodEnd, errors_of_programs: frozenset[int] = EXIT_CODES_OF_ERRORS
) -> Failure | None:
    """Why there can be no restart after this end, or None where there can be one.

    ``errors_of_programs`` are the exit codes after which restartPolicy ExitCode wants none.
    """
    if ended.by_infrastructure:
        limit = spec.run_policy.disruption_limit
        if ended.failure_class is PodFailureClass.PREEMPTION or limit is None or status.restarts.disruption < limit:
            return None
        caused = "1 restart" if limit == 1 else f"{limit} restarts"
        why = f"; the infrastructure has caused {caused}, which is runPolicy.disruptionLimit"
        return _failure(Reason.DISRUPTION_LIMIT_EXCEEDED, ended, why)
    role = spec.replica_specs.get(ended.pod.role) or ReplicaSpec()
    codes = spec.run_policy.exit_codes or ExitCodes()
    end = ended.pod.termination
    code = end.exit_code if end is not None and not end.init_container else None
    by_policy = role.restart_policy is RestartPolicy.EXIT_CODE and code in errors_of_programs
    by_its_words = end is not None and end.final
    hopeless = (by_policy or by_its_words) and code not in codes.retryable
    if ended.failure_class is not PodFailureClass.OUT_OF_MEMORY and (hopeless or code in codes.fatal):
        why = "no restart can help" if by_its_words else "no restart can help after this exit code"
        return _failure(Reason.FATAL_EXIT_CODE, ended, f"; {why}")
    if role.restart_policy is RestartPolicy.NEVER:
        return _failure(Reason.REPLICA_FAILED, ended)
    spent = used_up(spec, status)
    return _failure(Reason.BACKOFF_LIMIT_EXCEEDED, ended, spent) if spent is not None else None


def _failure(reason: Reason, ended: PodEnd, why: str = "") -> Failure:
    """What its cause is costs the more, the more a pod has said: it is asked only where there can be no restart."""
    cause = root_cause(ended)
    note = f"; {ended.note}" if ended.note else ""
    return Failure(reason, f"{how_it_failed(cause)}{note}{why}", cause)


def used_up(spec: JobSpec, status: JobStatus) -> str | None:
    """What to add to the message of an error for which ``backoffLimit`` leaves no restart; None where it leaves one."""
    limit = spec.run_policy.backoff_limit
    if errors(status.restarts) < limit:
        return None
    spent = "1 restart is" if limit == 1 else f"{limit} restarts are"
    return f"; {spent} used up, which is runPolicy.backoffLimit" if limit else ""


def errors(counts: RestartCounts) -> int:
    """The restarts that ``backoffLimit`` counts."""
    return counts.user + counts.out_of_memory


def known_cause(status: JobStatus, ended: PodEnd) -> RootCause | None:
    """``rootCause`` where this end is what all start again for.

    What the infrastructure did is no cause of the job's own. A cause that was recorded for a pending restart is cleared
    if the infrastructure caused that restart after all.
    """
    if not ended.by_infrastructure:
        return root_cause(ended)
    before, restart = status.root_cause, status.pending_restart
    return None if before is not None and restart is not None and before.pod == restart.pod else before


def charge(status: JobStatus, failure_class: PodFailureClass, role: str = "") -> JobStatus:
    """``status`` with a restart more, for an end of this class, of a replica of this role if it was one's.

    A lack of memory is counted for the role: ``runPolicy.onOutOfMemory`` says what that means for its next pods.
    """
    field = {
        PodFailureClass.USER_ERROR: "user",
        PodFailureClass.OUT_OF_MEMORY: "out_of_memory",
        PodFailureClass.PREEMPTION: "preemption",
    }.get(failure_class, "disruption")
    counts = status.restarts
    counted = counts.model_copy(update={field: getattr(counts, field) + 1, "total": counts.total + 1})
    update: dict[str, object] = {"restarts": counted}
    if failure_class is PodFailureClass.OUT_OF_MEMORY:
        before = status.replica_statuses.get(role, ReplicaStatus())
        of_role = before.model_copy(update={"memory_increases": before.memory_increases + 1})
        update["replica_statuses"] = {**status.replica_statuses, role: of_role}
    return status.model_copy(update=update)
