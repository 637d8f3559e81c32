"""Kueue's labels on a job mean what the fields mean, and never something else in silence."""

from __future__ import annotations

import pytest

from builders import manifest, stored
from dtj.api.job import Job
from dtj.api.json import object_at
from dtj.api.kueue import MAX_EXECUTION_SECONDS, QUEUE, max_execution_seconds
from dtj.core.platform import Platform
from dtj.core.validity import problems


def labelled(labels: dict[str, str], **scheduling: object) -> Job:
    body = stored(manifest(runPolicy={"scheduling": scheduling} if scheduling else {}))
    metadata = object_at(body, "metadata")
    return Job.from_object({**body, "metadata": {**metadata, "labels": {**labels}}})


def queue_of(job: Job) -> tuple[str, str | None] | None:
    assert job.spec is not None
    scheduling = job.spec.run_policy.scheduling
    return (str(scheduling.gang), scheduling.queue) if scheduling is not None else None


@pytest.mark.parametrize(
    ("labels", "scheduling", "queue"),
    [
        ({QUEUE: "gpus"}, {}, ("Kueue", "gpus")),
        ({QUEUE: "gpus"}, {"gang": "Kueue", "queue": "gpus"}, ("Kueue", "gpus")),
        ({"app": "digits"}, {}, None),
    ],
    ids=["the label", "label and field", "neither"],
)
def test_the_label_is_the_field_queue(
    labels: dict[str, str], scheduling: dict[str, object], queue: tuple[str, str] | None
) -> None:
    job = labelled(labels, **scheduling)
    assert queue_of(job) == queue
    assert problems(job, Platform()) == ()


@pytest.mark.parametrize(
    ("labels", "scheduling", "words"),
    [
        ({QUEUE: "gpus"}, {"gang": "Kueue", "queue": "cpus"}, "names queue cpus: remove one of the two"),
        ({QUEUE: "gpus"}, {"gang": "Volcano"}, "names gang Volcano: remove one of the two"),
        ({QUEUE: "gpus", MAX_EXECUTION_SECONDS: "1h"}, {}, "must be a number of seconds from 1 to"),
        ({QUEUE: "gpus", MAX_EXECUTION_SECONDS: "0"}, {}, "must be a number of seconds from 1 to"),
    ],
)
def test_labels_that_cannot_be_followed_are_refused_in_one_line(
    labels: dict[str, str], scheduling: dict[str, object], words: str
) -> None:
    (problem,) = problems(labelled(labels, **scheduling), Platform())
    assert words in problem.message


@pytest.mark.parametrize(("given", "seconds"), [("1", 1), ("86400", 86400), ("-1", None), ("1h", None), ("", None)])
def test_the_time_of_execution_is_a_whole_number_of_seconds(given: str, seconds: int | None) -> None:
    assert max_execution_seconds({MAX_EXECUTION_SECONDS: given}) == seconds
