"""Expectations: no plan on a store that does not show yet what we did."""

from __future__ import annotations

import asyncio

from dtj.engine.expectations import TIME_LIMIT, Expectation, Expectations, Operation
from support.virtual_time import virtual_time

JOB = ("default", "uid")
POD = Expectation(Operation.CREATED, "pods", "digits-worker-0")
OTHER_POD = Expectation(Operation.CREATED, "pods", "digits-worker-1")


@virtual_time
async def test_a_job_waits_until_all_that_was_done_is_seen() -> None:
    expectations = Expectations()
    expectations.expect(JOB, POD)
    expectations.expect(JOB, OTHER_POD)
    expectations.settle(JOB, POD)
    assert expectations.remaining(JOB) == TIME_LIMIT
    expectations.settle(JOB, OTHER_POD)
    assert expectations.remaining(JOB) == 0.0


@virtual_time
async def test_a_lost_event_stops_a_job_for_a_limited_time_only() -> None:
    expectations = Expectations()
    expectations.expect(JOB, POD)
    await asyncio.sleep(TIME_LIMIT - 1.0)
    assert expectations.remaining(JOB) == 1.0
    await asyncio.sleep(1.0)
    assert expectations.remaining(JOB) == 0.0


@virtual_time
async def test_a_job_of_the_same_name_is_not_held_up_by_its_predecessor() -> None:
    expectations = Expectations()
    expectations.expect(JOB, POD)
    assert expectations.remaining(("default", "new uid")) == 0.0


@virtual_time
async def test_the_end_of_another_pod_of_that_name_does_not_settle_a_deletion() -> None:
    expectations = Expectations()
    expectations.expect(JOB, Expectation(Operation.DELETED, "pods", "uid-1"))
    expectations.settle(JOB, Expectation(Operation.DELETED, "pods", "uid-2"))
    expectations.settle(JOB, Expectation(Operation.CREATED, "pods", "uid-1"))
    assert expectations.remaining(JOB) > 0.0


@virtual_time
async def test_a_job_that_is_gone_leaves_nothing_behind() -> None:
    expectations = Expectations()
    expectations.expect(JOB, POD)
    expectations.forget(JOB)
    assert expectations.remaining(JOB) == 0.0


@virtual_time
async def test_a_pod_of_another_namespace_that_names_the_job_as_owner_settles_nothing() -> None:
    expectations = Expectations()
    expectations.expect(JOB, POD)
    expectations.settle(("evil", "uid"), POD)
    assert expectations.remaining(JOB) > 0.0
