"""Jobs with fields of a CRD that is newer than the operator, as after a rollback with `crds.enabled: false`."""

from __future__ import annotations

from dataclasses import replace

from builders import manifest, stored
from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.core.observed import Phase
from world import running


def test_a_job_with_a_field_that_this_operator_does_not_know_goes_on() -> None:
    world = running(roles={"worker": 2})
    body = manifest(roles={"worker": 2}, runPolicy={"newInTheNextVersion": False}, another={"a": 1})
    newer = Job.from_object(stored(body))
    world.job = replace(world.job, spec=newer.spec, problems=newer.problems, raw_spec=newer.raw_spec)
    world.settle()
    assert world.job.status.state == "Running"
    world.sees("worker-0", Phase.SUCCEEDED)
    assert world.is_true(Condition.SUCCESS_CRITERIA_MET)
