"""Which budget pays for a restart, by the class of the end and the restart policy of the role, in two tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from builders import ended, job, pod, spec_of
from dtj.api.names import Reason
from dtj.api.spec import RestartPolicy
from dtj.api.status import JobStatus, RestartCounts
from dtj.core.observed import Phase
from dtj.core.pod_failure import LATEST, PodEnd, PodFailureClass, last_words
from dtj.core.policies.budgets import charge, restart_denied, used_up

BUDGETS: Final = {
    PodFailureClass.USER_ERROR: ("user", Reason.BACKOFF_LIMIT_EXCEEDED),
    PodFailureClass.OUT_OF_MEMORY: ("out_of_memory", Reason.BACKOFF_LIMIT_EXCEEDED),
    PodFailureClass.DISRUPTION: ("disruption", Reason.DISRUPTION_LIMIT_EXCEEDED),
    PodFailureClass.PEER_LOST: ("disruption", Reason.DISRUPTION_LIMIT_EXCEEDED),
    PodFailureClass.PREEMPTION: ("preemption", None),
}
"""The counter that a restart is added to, and why the job fails once that is used up; None if it never is."""

DENIED: Final = {
    # A restart policy decides about errors of the program alone.
    (RestartPolicy.ON_FAILURE, PodFailureClass.USER_ERROR, 1): None,
    (RestartPolicy.NEVER, PodFailureClass.USER_ERROR, 1): Reason.REPLICA_FAILED,
    (RestartPolicy.EXIT_CODE, PodFailureClass.USER_ERROR, 1): Reason.FATAL_EXIT_CODE,
    (RestartPolicy.EXIT_CODE, PodFailureClass.USER_ERROR, 3): None,
    (RestartPolicy.ON_FAILURE, PodFailureClass.OUT_OF_MEMORY, 137): None,
    # No exit code of a process that was killed says whether another attempt has enough memory.
    (RestartPolicy.EXIT_CODE, PodFailureClass.OUT_OF_MEMORY, 1): None,
    (RestartPolicy.NEVER, PodFailureClass.OUT_OF_MEMORY, 137): Reason.REPLICA_FAILED,
    **{
        (policy, failure_class, code): None
        for policy in RestartPolicy
        for failure_class, code in (
            (PodFailureClass.DISRUPTION, 137),
            (PodFailureClass.PREEMPTION, 42),
            (PodFailureClass.PEER_LOST, 75),
        )
    },
}
"""Why a role with this restart policy gets no restart while the budgets are full; None if it gets one."""

BY_EXIT_CODES: Final = {
    (RestartPolicy.EXIT_CODE, PodFailureClass.USER_ERROR, 139): Reason.FATAL_EXIT_CODE,
    (RestartPolicy.EXIT_CODE, PodFailureClass.USER_ERROR, 2): None,
    (RestartPolicy.ON_FAILURE, PodFailureClass.USER_ERROR, 9): Reason.FATAL_EXIT_CODE,
    (RestartPolicy.ON_FAILURE, PodFailureClass.OUT_OF_MEMORY, 9): None,
}
"""The same where ``runPolicy.exitCodes`` says that 2 is retryable and 9 is fatal."""

LIMIT: Final = 2

FINAL: Final = replace(ended(2), final=True)
"""The end of a trainer that says that no restart can help."""


def _end(failure_class: PodFailureClass, code: int = 3, *, policy: RestartPolicy = RestartPolicy.ON_FAILURE) -> tuple:  # type: ignore[type-arg]
    made = job(
        replicaSpecs={"worker": {"replicas": 2, "restartPolicy": str(policy)}},
        runPolicy={
            "backoffLimit": LIMIT,
            "disruptionLimit": LIMIT,
            "exitCodes": {"retryable": [2], "fatal": [9]},
        },
    )
    worker = pod(made, "worker-0", phase=Phase.FAILED, termination=ended(code))
    return spec_of(made), PodEnd(worker, failure_class, LATEST)


@pytest.mark.parametrize("failure_class", BUDGETS)
def test_a_restart_is_paid_by_the_budget_of_its_class(failure_class: PodFailureClass) -> None:
    counter, _ = BUDGETS[failure_class]
    assert charge(JobStatus(), failure_class, "worker").restarts == RestartCounts(**{counter: 1, "total": 1})


@pytest.mark.parametrize("failure_class", BUDGETS)
def test_there_is_no_restart_once_the_budget_of_its_class_is_used_up(failure_class: PodFailureClass) -> None:
    counter, reason = BUDGETS[failure_class]
    spec, end = _end(failure_class)
    left = JobStatus(restarts=RestartCounts(**{counter: LIMIT - 1}))
    assert restart_denied(spec, left, end) is None
    denied = restart_denied(spec, JobStatus(restarts=RestartCounts(**{counter: LIMIT})), end)
    assert (denied.reason if denied is not None else None) == reason


@pytest.mark.parametrize("failure_class", BUDGETS)
def test_no_class_is_paid_by_the_budget_of_another(failure_class: PodFailureClass) -> None:
    spec, end = _end(failure_class)
    errors = {"user", "out_of_memory"}  # backoffLimit counts both
    counter, _ = BUDGETS[failure_class]
    shared = errors if counter in errors else {counter}
    others = {each: LIMIT for each in ("user", "out_of_memory", "disruption", "preemption") if each not in shared}
    assert restart_denied(spec, JobStatus(restarts=RestartCounts(**others)), end) is None


@pytest.mark.parametrize(("policy", "failure_class", "code"), DENIED | BY_EXIT_CODES)
def test_the_restart_policy_of_the_role_decides_about_errors_of_the_program_alone(
    policy: RestartPolicy, failure_class: PodFailureClass, code: int
) -> None:
    spec, end = _end(failure_class, code, policy=policy)
    denied = restart_denied(spec, JobStatus(), end)
    assert (denied.reason if denied is not None else None) == (DENIED | BY_EXIT_CODES)[policy, failure_class, code]


@pytest.mark.parametrize("policy", RestartPolicy)
def test_an_error_of_which_the_trainer_says_that_no_restart_can_help_gets_none(policy: RestartPolicy) -> None:
    made = job(replicaSpecs={"worker": {"replicas": 1, "restartPolicy": str(policy)}})
    refused = replace(FINAL, message="--task=poetry: no such task")
    end = PodEnd(pod(made, "worker-0", phase=Phase.FAILED, termination=refused), PodFailureClass.USER_ERROR, LATEST)
    denied = restart_denied(spec_of(made), JobStatus(), end)
    assert denied is not None
    assert denied.reason is Reason.FATAL_EXIT_CODE
    assert denied.message.endswith("exited with code 2: --task=poetry: no such task; no restart can help")


def test_a_user_may_have_it_retried_all_the_same() -> None:
    spec, end = _end(PodFailureClass.USER_ERROR, 2)
    assert restart_denied(spec, JobStatus(), replace(end, pod=replace(end.pod, termination=FINAL))) is None


@pytest.mark.parametrize(
    ("message", "code", "read"),
    [
        ("dtj: no restart can help\nno such task\n", 2, ("no such task\n", True)),
        ("dtj: no restart can help\nno such task", 1, ("dtj: no restart can help\nno such task", False)),
        (
            "usage: train.py [-h]\ndtj: no restart can help",
            2,
            ("usage: train.py [-h]\ndtj: no restart can help", False),
        ),
        ("train.py: error: unrecognized arguments: -x", 2, ("train.py: error: unrecognized arguments: -x", False)),
        ("", 2, ("", False)),
    ],
)
def test_only_code_2_with_the_line_of_ours_first_says_so(message: str, code: int, read: tuple[str, bool]) -> None:
    assert last_words(message, code) == read


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (0, ""),
        (1, "; 1 restart is used up, which is runPolicy.backoffLimit"),
        (2, "; 2 restarts are used up, which is runPolicy.backoffLimit"),
    ],
)
def test_the_message_says_how_many_restarts_are_used_up(limit: int, words: str) -> None:
    made = job(runPolicy={"backoffLimit": limit})
    assert used_up(spec_of(made), JobStatus(restarts=RestartCounts(user=limit))) == words
