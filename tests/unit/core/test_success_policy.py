"""When a job has succeeded: success policy and what has ended, in one table."""

from __future__ import annotations

from typing import Final

import pytest

from builders import ended, job, pod, spec_of
from dtj.core.observed import Phase
from dtj.core.outcome import PodLosses, Success
from dtj.core.pod_failure import PodFailureClass, ends_of
from dtj.core.pod_state import replica_of
from dtj.core.policies.success_policy import decide
from world import running

WITH_CHIEF: Final = {"chief": 1, "worker": 1}
WORKERS: Final = {"worker": 2}

CASES: Final = {
    "the chief has completed": ("Chief", WITH_CHIEF, {"chief-0": 0}, "success"),
    "a worker has completed, the chief trains": ("Chief", WITH_CHIEF, {"worker-0": 0}, "nothing"),
    "without a chief worker 0 decides": ("Chief", WORKERS, {"worker-0": 0}, "success"),
    "without a chief worker 1 does not decide": ("Chief", WORKERS, {"worker-1": 0}, "nothing"),
    "one of all workers has completed": ("AllWorkers", WORKERS, {"worker-0": 0}, "nothing"),
    "all workers have completed": ("AllWorkers", WORKERS, {"worker-0": 0, "worker-1": 0}, "success"),
    "the chief is one of all workers": ("AllWorkers", WITH_CHIEF, {"worker-0": 0}, "nothing"),
    "a worker has failed": ("Chief", WITH_CHIEF, {"worker-0": 3}, "loss of worker-0"),
    "the chief has failed": ("Chief", WITH_CHIEF, {"chief-0": 3}, "loss of chief-0"),
    "one has completed and one has failed": ("AllWorkers", WORKERS, {"worker-0": 0, "worker-1": 3}, "loss of worker-1"),
    "an evaluator's success decides nothing": ("Chief", {"worker": 1, "evaluator": 1}, {"evaluator-0": 0}, "nothing"),
}


@pytest.mark.parametrize(("policy", "roles", "codes", "expected"), CASES.values(), ids=list(CASES))
def test_the_success_policy_says_whose_end_is_the_jobs(
    policy: str, roles: dict[str, int], codes: dict[str, int], expected: str
) -> None:
    assert _outcome(policy, roles, codes) == expected


@pytest.mark.parametrize(
    ("strategy", "roles", "first"),
    [("Pipeline", WORKERS, "worker-0"), ("Pipeline", WITH_CHIEF, "chief-0"), ("TPU", WITH_CHIEF, "chief-0")],
)
def test_all_workers_are_the_first_alone_where_the_others_only_serve_it(
    strategy: str, roles: dict[str, int], first: str
) -> None:
    assert _outcome("AllWorkers", roles, {first: 0}, strategy=strategy) == "success"


@pytest.mark.parametrize(("seconds", "expected"), [(1, "success"), (5, "success"), (6, "loss of worker-0")])
def test_a_completion_wins_over_an_error_that_is_no_more_than_the_clocks_differ_earlier(
    seconds: float, expected: str
) -> None:
    assert _outcome("Chief", WITH_CHIEF, {"worker-0": 3, "chief-0": 0}, at={"chief-0": seconds}) == expected


def _outcome(
    policy: str,
    roles: dict[str, int],
    codes: dict[str, int],
    *,
    at: dict[str, float] | None = None,
    strategy: str = "MultiWorkerMirrored",
) -> str:
    """What is decided when these replicas have ended with these exit codes; the others run."""
    made = job(roles=roles, strategy=strategy, runPolicy={"successPolicy": policy})
    pods = [
        pod(
            made,
            name,
            phase=Phase.FAILED if code else Phase.SUCCEEDED,
            termination=ended(code, after_seconds=(at or {}).get(name, 0)),
        )
        for name, code in codes.items()
    ]
    terminated = ends_of(pods)
    done = {replica_of(e.pod) for e in terminated if e.failure_class is PodFailureClass.COMPLETED}
    outcome = decide(spec_of(made), terminated, frozenset(each for each in done if each is not None))
    if isinstance(outcome, PodLosses):
        return f"loss of {outcome.first.pod.role}-{outcome.first.pod.index}"
    return "success" if isinstance(outcome, Success) else "nothing"


def test_a_peer_that_is_stopped_at_the_end_counts_as_failed_neither_while_it_goes_nor_when_it_is_gone() -> None:
    world = running()
    world.sees("worker-0", Phase.SUCCEEDED)
    gone = world.job.status.replica_statuses["worker"].model_copy(update={"active": 0, "ready": 0})
    world.sees("worker-1", Phase.FAILED, exit_code=143)
    assert world.job.status.state == "Succeeded"
    assert world.job.status.replica_statuses["worker"] == gone
