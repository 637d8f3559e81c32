"""The exported model in the job's status, out of the last words of the replica that exported it."""

from __future__ import annotations

import json

import pytest

from dtj.api.names import Condition
from dtj.api.status import ExportedModel, JobStatus
from dtj.core.observed import Phase
from world import running

DIGEST = "sha256:" + 64 * "a"
MODEL = {"path": "/export/1", "formats": ["SavedModel", "TFLite"], "size": 1902069, "digest": DIGEST}
WORDS = json.dumps({"export": MODEL})
EXPORTED = ExportedModel(path="/export/1", formats=("SavedModel", "TFLite"), size=1902069, digest=DIGEST)


def test_what_the_chief_exported_is_in_the_status_of_the_job_that_succeeded() -> None:
    world = running(roles={"chief": 1, "worker": 1})
    world.set_pod("chief-0", Phase.SUCCEEDED, message=WORDS)
    world.settle_deletions()
    assert world.is_true(Condition.COMPLETE)
    assert world.job.status.export == EXPORTED
    assert JobStatus.from_object(world.job.status.to_object()).export == EXPORTED


def test_where_all_workers_must_succeed_it_is_recorded_when_the_first_is_done() -> None:
    world = running(runPolicy={"successPolicy": "AllWorkers"})
    world.sees("worker-0", Phase.SUCCEEDED, message=WORDS)
    assert not world.is_true(Condition.COMPLETE)
    assert world.job.status.export == EXPORTED
    world.remove("worker-0")
    world.sees("worker-1", Phase.SUCCEEDED, message=json.dumps({"export": {"path": "/elsewhere"}}))
    assert world.is_true(Condition.COMPLETE)
    assert world.job.status.export == EXPORTED, "worker 0 alone exports"


def test_a_later_attempt_that_reports_none_leaves_what_was_exported_before() -> None:
    world = running(runPolicy={"successPolicy": "AllWorkers"})
    world.sees("worker-0", Phase.SUCCEEDED, message=WORDS)
    world.set_pod("worker-1", Phase.FAILED)
    world.wait(60)
    assert world.job.status.attempt == 2
    world.settle_deletions()
    world.run_all()
    for worker in ("worker-0-r1", "worker-1-r1"):
        world.set_pod(worker, Phase.SUCCEEDED)
    world.settle()
    assert world.is_true(Condition.COMPLETE)
    assert world.job.status.export == EXPORTED


def test_the_words_of_a_pod_that_failed_name_no_model() -> None:
    world = running(runPolicy={"backoffLimit": 0})
    world.set_pod("worker-0", Phase.FAILED, message=WORDS)
    world.settle_deletions()
    assert world.is_true(Condition.FAILED)
    assert world.job.status.export is None


@pytest.mark.parametrize(
    ("message", "read"),
    [
        (WORDS, EXPORTED),
        ('{"export": {"path": "/e"}, "more": 1}', ExportedModel(path="/e")),
        ('{"export": {"path": "/e", "size": -1, "digest": 5, "formats": "all"}}', ExportedModel(path="/e")),
        (json.dumps({"export": {"path": "/e", "digest": "x" * 1000}}), ExportedModel(path="/e")),
        (json.dumps({"export": {"path": "/e", "formats": ["x"] * 1000}}), ExportedModel(path="/e")),
        (json.dumps({"export": {"path": "x" * 5000}}), None),
        ('{"export": {"path": "\\ud800"}}', None),
        (json.dumps({"export": {"path": "/e\x1b[2J"}}), None),
        (json.dumps({"export": {"path": "/e", "digest": "a\x9b2Jb", "formats": ["\u202e"]}}), ExportedModel(path="/e")),
        ('{"export": {"size": 5}}', None),
        ("[1, 2]", None),
        ("", None),
        ("[" * 10_000, None),
        (WORDS + " " * 100_000, None),
    ],
    ids=range(14),
)
def test_of_last_words_that_lie_what_makes_sense_is_read(message: str, read: ExportedModel | None) -> None:
    assert ExportedModel.from_message(message) == read
