"""Following a job of a cluster: what ends it, and what it waits out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from dtj.api.job import Job
from dtj.cli.common.console import Screen
from dtj.cli.status import show
from dtj.client import AsyncClient, JobGone
from dtj.client.overview import Overview
from dtj.kube.errors import NotFound, Unavailable
from overviews import body, overview

FIRST = overview(body(state="Starting"))
OTHER = overview({**body(), "metadata": {**cast("dict[str, Any]", body()["metadata"]), "uid": "other"}})
DONE = overview(body(state="Succeeded"))
SILENT = Unavailable("no answer", status=0, reason="")
GONE = NotFound("it is gone", status=404, reason="NotFound")


class Client:
    """A client that has no more to say of the job than that it is there."""

    gateway = None

    async def follow(self, _name: str, *, namespace: str) -> AsyncGenerator[Job, None]:
        yield FIRST.job
        await asyncio.Event().wait()


class Shown(list[str]):
    """A screen that keeps the states that it shows."""

    def show(self, now: Overview) -> None:
        self.append(now.job.status.state)


def followed(monkeypatch: pytest.MonkeyPatch, *answers: Overview | Exception) -> tuple[Overview, Shown]:
    """What was seen last, and what was shown; ``answers`` are what the cluster says, in turn."""
    left = iter(answers)

    async def gather(*_: object, **__: object) -> Overview:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    for name in ("_CALM_SECONDS", "_REFRESH_SECONDS"):
        monkeypatch.setattr(show, name, 0.0)
    monkeypatch.setattr(show, "gather", gather)
    shown = Shown()
    client, screen = cast("AsyncClient", cast("Any", Client())), cast("Screen[Overview]", cast("Any", shown))
    until = show.follow(client, FIRST, screen, until=lambda job: job.status.state == "Succeeded")
    return asyncio.run(until), shown


def test_a_job_is_shown_until_it_is_as_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    last, shown = followed(monkeypatch, FIRST, DONE)
    assert (last, shown) == (DONE, ["Starting", "Starting", "Succeeded"])


@pytest.mark.parametrize(
    ("answer", "words"), [(GONE, "digits: was deleted$"), (OTHER, "digits: was deleted and created again")]
)
def test_a_deleted_job_ends_it(monkeypatch: pytest.MonkeyPatch, answer: Overview | Exception, words: str) -> None:
    with pytest.raises(JobGone, match=words):
        followed(monkeypatch, answer)


def test_a_cluster_that_is_silent_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, SILENT, SILENT, DONE)[0] == DONE
    monkeypatch.setattr(show, "OUTAGE_SECONDS", -1.0)
    with pytest.raises(Unavailable):
        followed(monkeypatch, SILENT, DONE)
