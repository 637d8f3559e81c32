"""The controller: takes a key, observes, has it planned, has the plan carried out.

Level-triggered: a pass starts from what is in the stores now and does not know what woke it. A pass that finds
nothing to do makes no call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from dtj.core.actions import Plan, RequeueAfter
from dtj.core.observed import Observed
from dtj.core.policies import operator_error
from dtj.engine.creation import Creator
from dtj.engine.executor import Executor
from dtj.engine.job_store import JobRecord
from dtj.engine.logs import about
from dtj.engine.metrics import Metrics
from dtj.engine.queue import QueueShutDown, WorkQueue
from dtj.engine.state import ClusterState
from dtj.engine.supervision import PASS, Supervisor, words_of
from dtj.kube.errors import ApiError, Conflict, NotFound
from dtj.kube.records import Key

log = logging.getLogger(__name__)

PlanFunction: TypeAlias = Callable[[Observed, datetime], Plan]

MAX_PLANS_A_PASS: Final = 5
"""How often a pass may plan again at once, because something new is known, before it must wait like a failed one."""

DEFECTS_TO_REPORT: Final = 2
"""Errors of our own in a row after which a job's status says so: the first may pass by itself."""

CONFLICTS_TO_DOUBT: Final = 3
"""Conflicts in a row after which it is no lag of a moment: the watch is silent, or what it reported is true no more."""


class Controller:
    """Processes keys, as many at a time as the queue has places, and never one key twice at a time."""

    def __init__(
        self,
        *,
        queue: WorkQueue[Key],
        state: ClusterState,
        plan: PlanFunction,
        executor: Executor,
        creator: Creator,
        metrics: Metrics,
        supervisor: Supervisor,
        now: Callable[[], datetime],
        in_doubt: Callable[[], None],
        hands_off: Callable[[], bool] = lambda: False,
    ) -> None:
        """``in_doubt`` is called when an answer of the API server raises doubt whether a job is still there.
        ``hands_off`` says whether nothing may be done for any job."""
        self._queue = queue
        self._state = state
        self._plan = plan
        self._executor = executor
        self._creator = creator
        self._metrics = metrics
        self._supervisor = supervisor
        self._now = now
        self._in_doubt = in_doubt
        self._hands_off = hands_off
        self._planning = asyncio.Lock()

    async def run(self) -> None:
        """Process keys until the queue is shut down; passes that have begun are finished."""
        async with asyncio.TaskGroup() as group:
            with suppress(QueueShutDown):
                while True:
                    key = await self._queue.get()
                    task = group.create_task(self._process(key), name=f"pass over {'/'.join(key)}")
                    # Not by the task itself: one that is cancelled before it begins does nothing at all.
                    task.add_done_callback(partial(self._done, key))

    def _done(self, key: Key, _: asyncio.Task[None]) -> None:
        self._queue.done(key)

    async def _process(self, key: Key) -> None:
        """One pass over a job; what goes wrong is logged, and tried again later."""
        over = False
        with self._supervisor.sparing("controller"):
            if (record := self._state.jobs.get(key)) is None or record.deleting:
                self._queue.forget(key)
            else:
                await self._pass_over(key, record)
            over = True
        if not over:
            self._queue.add_failed(key)

    async def _pass_over(self, key: Key, record: JobRecord) -> None:
        self._state.caches.begin(record.uid)
        try:
            with self._metrics.reconcile():
                settled = await self._reconcile(key)
        except ApiError as error:
            delay = self._queue.add_failed(key, at_least=error.retry_after or 0.0)
            in_a_row = self._queue.failures(key)
            if isinstance(error, NotFound) or (isinstance(error, Conflict) and in_a_row >= CONFLICTS_TO_DOUBT):
                self._in_doubt()
            # A conflict is the normal end of a plan that was made from an old version.
            level = logging.DEBUG if isinstance(error, Conflict) else logging.WARNING
            log.log(
                level,
                "%s; trying again in %.1f s",
                error.message,
                delay,
                extra=about(record, action="retry", reason=error.reason),
            )
        except Exception as error:
            # A defect that one job meets must not stop the others.
            delay = self._queue.add_failed(key)
            self._metrics.defects(PASS, 1)
            log.exception("planning failed; trying again in %.1f s", delay, extra=about(record, action="retry"))
            if self._queue.failures(key) >= DEFECTS_TO_REPORT:
                await self._report(key, error)
        else:
            if settled:
                self._queue.forget(key)
            else:
                self._queue.add_failed(key)
        finally:
            now = self._state.jobs.get(key)
            if now is None or now.uid != record.uid:
                # A job that went while it was worked on leaves nothing behind.
                self._state.expectations.forget(record.identity)

    async def _report(self, key: Key, error: Exception) -> None:
        """Write into the job's status what keeps it from being planned."""
        record = self._state.jobs.get(key)
        if record is None or record.deleting or self._hands_off():
            return
        job = self._state.job_of(record)
        try:
            if said := operator_error.report(job, words_of(error), self._now()):
                await self._executor.execute(job, said)
        except ApiError as refused:
            log.debug("the error is not reported: %s", refused.message, extra=about(record, action="status"))

    async def _reconcile(self, key: Key) -> bool:
        """Plan and act until nothing new is learned. Returns False if that took suspiciously long."""
        for _ in range(MAX_PLANS_A_PASS):
            await self._take_turn()
            record = self._state.jobs.get(key)
            if record is None or record.deleting or self._hands_off():
                return True
            unsettled = self._state.expectations.remaining(record.identity)
            if unsettled > 0.0:
                # The informer's event comes first as a rule, and wakes the key itself.
                self._queue.add_after(key, unsettled)
                return True
            job = self._state.job_of(record)
            await self._creator.look_again(job)
            plan = self._plan(self._state.observe(job), self._now())
            result = await self._executor.execute(job, plan)
            if result.after is not None:
                self._queue.add_after(key, result.after)
            if not result.again and self._state.expectations.remaining(record.identity) == 0.0:
                if record.terminal and _only_waits(plan):
                    self._state.rest(record)
                return True
        return False

    async def _take_turn(self) -> None:
        """Let the event loop do what else is due between two plans: many jobs may be planned at once, and a lease must
        be renewed meanwhile."""
        async with self._planning:
            await asyncio.sleep(0)


def _only_waits(plan: Plan) -> bool:
    """Whether there is nothing to do but to look again later."""
    return all(isinstance(action, RequeueAfter) for action in plan)
