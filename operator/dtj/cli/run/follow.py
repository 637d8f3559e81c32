"""Following a job of a cluster on a screen, until it has ended or a person has seen enough."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Final

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.cli.run.cluster_view import cluster_view, news
from dtj.cli.run.render_lines import stamped
from dtj.cli.run.screen import Screen
from dtj.client import AsyncClient, Forbidden, JobGone, Pod
from dtj.local.view import RunView

TICK: Final = 1.0
"""Seconds between two looks at a job that does not change: its time goes on."""


async def follow(client: AsyncClient, job: Job, shown: Screen) -> Job:
    """Show the job until it has ended, or is found invalid; its last state.

    Raises JobGone where it is deleted meanwhile, and ApiError.
    """
    followed = _FollowedJob(job, shown)
    async with aclosing(client.follow(job.name, namespace=job.namespace)) as jobs:
        watching = (asyncio.create_task(followed.see_job(jobs)), asyncio.create_task(followed.see_pods(client)))
        try:
            while True:
                followed.changed.clear()
                followed.show()
                if followed.over:
                    return followed.job
                for task in watching:
                    if task.done():
                        task.result()
                with suppress(TimeoutError):
                    await asyncio.wait_for(followed.changed.wait(), TICK)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


class _FollowedJob:
    """The job and its pods as they were seen last, and whether there is more to see."""

    def __init__(self, job: Job, shown: Screen) -> None:
        self.job = job
        self.changed = asyncio.Event()
        self._shown_job = job
        self._pods: tuple[Pod, ...] = ()
        self._shown = shown

    @property
    def over(self) -> bool:
        """Whether the job has ended, or the operator says that it cannot begin as it is written."""
        return self.job.status.terminal or self.job.status.is_true(Condition.INVALID)

    def show(self) -> None:
        """The job as it is now, and what has happened to it since the last time."""
        view = self._view()
        for words in news(self._shown_job, self.job):
            self._shown.say(stamped(view, words))
        self._shown_job = self.job
        self._shown.show(view)

    async def see_job(self, jobs: AsyncGenerator[Job, None]) -> None:
        """Keep the job true. Raises JobGone at its deletion, and ApiError."""
        try:
            async for self.job in jobs:
                self.changed.set()
            raise JobGone(f"{self.job.name}: was deleted", job=self.job)
        finally:
            self.changed.set()

    async def see_pods(self, client: AsyncClient) -> None:
        """Keep the pods up to date, if the user may read them."""
        try:
            async with aclosing(client.follow_pods(self.job)) as pods:
                async for self._pods in pods:
                    self.changed.set()
        except Forbidden as error:
            self._shown.say(f"Its pods cannot be shown: {error.message}")
        finally:
            self.changed.set()

    def _view(self) -> RunView:
        assert self.job.spec is not None, "the manifest was checked"
        return cluster_view(self.job, self.job.spec, self._pods, now=datetime.now(UTC))
