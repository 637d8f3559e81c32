"""What can be waited for, which condition explains the state of a job, and how a job has ended, in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builders import job
from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.api.status import ConditionStatus, JobStatus
from dtj.client import AsyncClient, WaitTimeout
from dtj.client.diagnosis import explaining_condition, how_job_ended
from dtj.client.watching import WaitCondition, where_it_is
from support.kubeconfigs import kubeconfig


def with_conditions(*kinds: Condition, generation: int = 1, observed: int = 1) -> Job:
    conditions = tuple(ConditionStatus(type=kind, status="True", observed_generation=observed) for kind in kinds)
    return replace(job(), status=JobStatus(state="Running", conditions=conditions), generation=generation)


@pytest.mark.parametrize("kind", Condition)
def test_a_condition_goes_by_its_name_in_any_case(kind: Condition) -> None:
    for word in (kind, kind.lower(), kind.upper(), f"condition={kind}"):
        assert WaitCondition.parse(word) == WaitCondition(kind)


@pytest.mark.parametrize("end", [Condition.COMPLETE, Condition.FAILED])
def test_without_a_condition_either_end_will_do(end: Condition) -> None:
    assert WaitCondition(None).met(with_conditions(end))
    assert not WaitCondition(None).met(with_conditions(Condition.PODS_READY))


def test_what_was_true_of_the_job_before_it_was_changed_does_not_count() -> None:
    condition = WaitCondition(Condition.PODS_READY)
    assert condition.met(with_conditions(Condition.PODS_READY))
    assert not condition.met(with_conditions(Condition.PODS_READY, generation=2))
    assert condition.met(with_conditions(Condition.PODS_READY, observed=0)), (
        "a controller that does not say so is believed"
    )


def test_an_end_is_for_good_whatever_is_changed_after_it() -> None:
    assert WaitCondition(Condition.COMPLETE).met(with_conditions(Condition.COMPLETE, generation=2))


def test_where_a_job_is_is_reported_in_a_few_words() -> None:
    status = JobStatus(state="Starting", ready="1/2", reason="Unschedulable")
    assert where_it_is(replace(job(), status=status)) == "Starting (1/2 ready): Unschedulable"
    assert where_it_is(job()) == "new: no operator has seen it yet (is one running?)"


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.wait("digits", timeout=0.5),
        lambda client: client.stop("digits", timeout=0.5),
        lambda client: client.delete("digits", timeout=0.5),
    ],
    ids=["wait", "stop", "delete"],
)
async def test_a_limit_holds_also_where_the_cluster_never_answers(
    tmp_path: Path, call: Callable[[AsyncClient], Awaitable[object]]
) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    config = kubeconfig(tmp_path, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with await AsyncClient.connect(kubeconfig=str(config)) as client:
        with pytest.raises(WaitTimeout, match=r"^digits: .*the cluster has not answered"):
            await call(client)
    server.close()


def told(**statuses: str) -> Job:
    """A job with these conditions; the message of each is its name."""
    conditions = tuple(
        ConditionStatus.model_validate({"type": kind, "status": status, "reason": "Some", "message": f"about {kind}"})
        for kind, status in statuses.items()
    )
    return replace(job(), status=JobStatus(conditions=conditions))


@pytest.mark.parametrize(
    ("conditions", "explains"),
    [
        ({"Failed": "True", "PodsReady": "False"}, Condition.FAILED),
        ({"Complete": "True", "PodsReady": "False"}, Condition.COMPLETE),
        ({"Invalid": "True"}, Condition.INVALID),
        ({"Suspended": "True", "PodsReady": "False"}, Condition.SUSPENDED),
        ({"ProgressStalled": "True", "PodsReady": "True"}, Condition.PROGRESS_STALLED),
        ({"PodsReady": "False"}, Condition.PODS_READY),
        ({"Suspended": "False", "PodsReady": "False"}, Condition.PODS_READY),
        ({"Suspended": "False", "ProgressStalled": "Unknown", "PodsReady": "True"}, None),
        ({}, None),
    ],
)
def test_a_condition_that_holds_explains_the_state(conditions: dict[str, str], explains: Condition | None) -> None:
    found = explaining_condition(told(**conditions))
    assert (found.type if found is not None else None) == explains


def test_a_job_has_failed_or_succeeded_with_the_message_of_its_condition() -> None:
    assert how_job_ended(told(Failed="True")) == "digits has failed: about Failed"
    assert how_job_ended(told(Complete="True")) == "digits has succeeded: about Complete"
