"""What goes wrong in one part of the engine ends neither the others nor the process, and reaches whom it concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from builders import manifest, stored
from dtj.api.form import DTJ, Form
from dtj.api.json import fields_of, objects, text
from dtj.api.tfjob.form import TFJOB
from dtj.core.actions import Plan
from dtj.core.observed import Observed
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine import progress
from dtj.engine.engine import Engine, EngineSettings
from dtj.engine.feed import JobFeed
from dtj.engine.job_store import JobRecord, JobStore, News
from dtj.engine.state import JobCaches
from dtj.engine.supervision import HOPELESS_SECONDS, Supervisor
from dtj.kube.gateway import JOBS, PODS, Listing, Resource, jobs_of
from dtj.kube.job_body import job_from_object
from support.engine_harness import Harness, harnessed
from support.fake_gateway import FakeGateway
from support.played_kubelets import play, put, state_of
from support.played_tfjobs import tfjob
from support.virtual_time import loop_time, settled, virtual_time

LISTS = EngineSettings(workers=2, rest=0.0, relist_every=300.0)


# -- the supervisor ---------------------------------------------------------------------------------------------------


class Failing:
    """A task that fails after so many seconds, each time that it is begun."""

    def __init__(self, *, after: float, error: BaseException | None = None) -> None:
        self.begun: list[float] = []
        self._after = after
        self._error = error or ZeroDivisionError("one\nline " + "x" * 5000)

    async def run(self) -> None:
        self.begun.append(loop_time())
        await asyncio.sleep(self._after)
        raise self._error


def counting() -> tuple[dict[str, int], Callable[[str, int], None]]:
    found: dict[str, int] = {}
    return found, lambda part, errors: found.update({part: found.get(part, 0) + errors})


@virtual_time
async def test_a_task_that_raises_is_begun_again_at_growing_intervals_counted_and_said_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted, count = counting()
    work = Failing(after=0.0)
    task = asyncio.create_task(Supervisor(count=count).keep("part", work.run))
    await settled()
    assert counted == {"part": 1}
    await asyncio.sleep(300.0)
    waits = [later - before for before, later in zip(work.begun, work.begun[1:], strict=False)]
    assert waits[0] <= 1.0
    assert 30.0 <= waits[-1] <= 60.0
    assert counted == {"part": len(work.begun)}
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(work.begun)
    assert lines[0].startswith("part failed: ZeroDivisionError: one line xxx")
    assert len(lines[0]) < 500
    assert all(record.exc_info for record in caplog.records)
    task.cancel()
    await settled()
    assert task.cancelled(), "what is asked to end ends"


@virtual_time
async def test_a_task_that_waits_for_something_that_was_cancelled_is_begun_again() -> None:
    work = Failing(after=0.0, error=asyncio.CancelledError())
    task = asyncio.create_task(Supervisor().keep("part", work.run))
    await asyncio.sleep(10.0)
    assert len(work.begun) > 2
    task.cancel()
    await settled()
    assert task.cancelled()


@virtual_time
async def test_a_task_that_returns_is_not_begun_again() -> None:
    begun = []

    async def work() -> None:
        begun.append(1)

    await Supervisor().keep("part", work)
    assert begun == [1]


@virtual_time
async def test_only_a_task_that_new_starts_do_not_help_fails_the_liveness_probe() -> None:
    supervisor = Supervisor()
    tasks = [
        asyncio.create_task(supervisor.keep("hopeless", Failing(after=5.0).run)),
        asyncio.create_task(supervisor.keep("now and then", Failing(after=90.0).run)),
    ]
    await asyncio.sleep(HOPELESS_SECONDS)
    assert supervisor.failing() == ""
    await asyncio.sleep(60.0)
    assert supervisor.failing().startswith("hopeless has failed for 6")
    for task in tasks:
        task.cancel()


@virtual_time
async def test_a_task_that_lasts_again_is_no_reason_to_end_the_process() -> None:
    supervisor, errors = Supervisor(), [ZeroDivisionError()] * 9

    async def work() -> None:
        if errors:
            raise errors.pop()
        await asyncio.sleep(10**9)

    task = asyncio.create_task(supervisor.keep("part", work))
    await asyncio.sleep(2 * HOPELESS_SECONDS)
    assert supervisor.failing() == ""
    task.cancel()


# -- each task of the engine ------------------------------------------------------------------------------------------

TASKS: dict[str, Callable[[Harness], tuple[object, str]]] = {
    "event recorder": lambda harness: (harness.engine._recorder, "_write"),
    "progress": lambda harness: (harness.engine._progress._questions, "until_done"),
    "stragglers": lambda harness: (harness.engine._stragglers._comparisons, "until_done"),
    "events of pods": lambda harness: (harness.engine._pod_events, "read_all"),
    "informer of pods": lambda harness: (harness.engine._informers[0], "_apply"),
    "informer of services": lambda harness: (harness.engine._informers[1], "_apply"),
    "list of jobs": lambda harness: (harness.engine.feed, "relist"),
    "controller": lambda harness: (harness.engine.queue, "get"),
}


@pytest.mark.parametrize("part", TASKS)
@virtual_time
async def test_a_job_is_run_although_a_task_of_the_engine_raises_once(
    part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fetch(*_: object, **__: object) -> bytes:
        return b'{"step": 7}'

    monkeypatch.setattr(progress, "fetch", fetch)
    async with harnessed(settings=LISTS) as harness:
        owner, name = TASKS[part](harness)
        working: Callable[..., object] = getattr(type(owner), name)
        raised: list[float] = []

        def once(self: object, *arguments: object, **options: object) -> object:
            if self is owner and not raised:
                raised.append(loop_time())
                raise ZeroDivisionError(part)
            return working(self, *arguments, **options)

        monkeypatch.setattr(type(owner), name, once)
        put(harness, "digits", roles={"worker": 3})
        await play(harness, "digits", seconds=400.0)
        assert raised, "the task has come to that place"
        assert len(harness.gateway.names(PODS)) == 3
        assert state_of(harness, "digits") == "Running"
        assert sum(record.getMessage().startswith(part) for record in caplog.records) == 1
        counted = harness.engine._metrics.registry.get_sample_value("dtj_defects_total", {"part": part})
        assert counted == 1


@virtual_time
async def test_a_job_is_run_although_the_pass_over_it_raises_before_it_plans(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin, raised = JobCaches.begin, list[str]()

    def once(self: JobCaches, uid: str) -> None:
        if not raised:
            raised.append(uid)
            raise ZeroDivisionError
        begin(self, uid)

    monkeypatch.setattr(JobCaches, "begin", once)
    async with harnessed() as harness:
        put(harness, "digits")
        await play(harness, "digits", seconds=40.0)
        assert raised
        assert state_of(harness, "digits") == "Running"
        assert sum(record.getMessage().startswith("controller failed") for record in caplog.records) == 1


@virtual_time
async def test_a_job_is_run_although_it_raises_where_the_one_before_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget, raised = JobFeed._forget, list[object]()

    def once(self: JobFeed, record: JobRecord | None) -> None:
        if not raised:
            raised.append(record)
            raise ZeroDivisionError
        forget(self, record)

    monkeypatch.setattr(JobFeed, "_forget", once)
    async with harnessed(settings=LISTS) as harness:
        put(harness, "digits")
        await play(harness, "digits", seconds=400.0)
        assert raised
        assert state_of(harness, "digits") == "Running"


@virtual_time
async def test_a_job_that_the_watch_could_not_hand_on_is_listed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    keep, raised = JobStore.put, list[str]()

    def once(self: JobStore, record: JobRecord) -> News:
        if not raised:
            raised.append(record.name)
            raise ZeroDivisionError
        return keep(self, record)

    monkeypatch.setattr(JobStore, "put", once)
    async with harnessed(settings=LISTS) as harness:
        put(harness, "digits")
        await play(harness, "digits", seconds=40.0)
        assert raised == ["digits"]
        assert state_of(harness, "digits") == "Running"


class LateNamespace(FakeGateway):
    """The objects of one namespace are listed later than those of others."""

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        await asyncio.sleep(5.0 if namespace == "late" else 0.0)
        return await super().list(resource, namespace=namespace, selector=selector)


@virtual_time
async def test_the_jobs_of_a_namespace_are_planned_although_it_raises_where_they_begin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin, raised = Engine._begin, list[str]()

    async def once(self: Engine, namespace: str | None) -> None:
        if namespace == "late" and not raised:
            for informer in self._informers_of[namespace]:
                await informer.synced.wait()
            raised.append(namespace)
            raise ZeroDivisionError
        await begin(self, namespace)

    monkeypatch.setattr(Engine, "_begin", once)
    gateway = LateNamespace()
    platform, now = Platform(), datetime.now(UTC)
    engine = Engine(
        gateway, plan=plan, platform=platform, instance="test", namespaces=("soon", "late"), now=lambda: now
    )
    task = asyncio.create_task(engine.run())
    engine.feed.put(job_from_object(gateway.put(JOBS, stored(manifest("digits"), namespace="late"))))
    await asyncio.sleep(60.0)
    assert raised
    assert [name for name in gateway.names(PODS) if name.startswith("digits-")] == [
        "digits-worker-0",
        "digits-worker-1",
    ]
    assert sum(record.getMessage().startswith("controller failed: ZeroDivision") for record in caplog.records) == 1
    engine.stop()
    await asyncio.wait([task], timeout=30.0)


@virtual_time
async def test_the_watch_of_an_engine_is_begun_again_after_an_error_and_ends_with_the_engine() -> None:
    gateway, watch, ended = FakeGateway(), Failing(after=5.0), list[float]()

    async def run() -> None:
        if watch.begun:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(loop_time())
        await watch.run()

    engine = Engine(gateway, plan=plan, platform=Platform(), instance="test", now=lambda: datetime.now(UTC))
    task = asyncio.create_task(engine.run(watch=run))
    await asyncio.sleep(30.0)
    assert (len(watch.begun), ended) == (1, [])
    engine.stop()
    await task
    assert ended == [loop_time()]


# -- a defect that one job meets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [DTJ, TFJOB], ids=lambda form: form.kind)
@virtual_time
async def test_a_defect_of_a_pass_reaches_the_status_of_the_job_and_goes_with_it(form: Form) -> None:
    broken = [True]

    def planner(observed: Observed) -> Plan:
        if broken[0] and observed.job.name == "poison":
            raise ZeroDivisionError("division by zero")
        return plan(observed, harness.now())

    async with harnessed(planner, form=form) as harness:
        for name in ("poison", "healthy"):
            put(harness, name, tfjob({"Worker": 2}) if form is TFJOB else None)
        await play(harness, "healthy", seconds=600.0)
        status = fields_of(harness.gateway.body(jobs_of(form), "poison")["status"])
        record = fields_of(status["dtj"]) if form.recorded_in else status
        found = {text(each["type"]): each for each in objects(record["conditions"])}
        words = "the operator met an error of its own, and tries again: ZeroDivisionError: division by zero"
        for kind, value in (("Stalled", "True"), ("PodsReady", "False")):
            assert (found[kind]["status"], found[kind]["message"]) == (value, words)
        if form.recorded_in:
            assert objects(status["conditions"])[-1]["message"] == words, "what the column State shows"
        written = [call for call in harness.gateway.calls if str(call) == f"patch {form.plural} poison"]
        assert len(written) == 1, "nothing is written in a loop"
        events = [call for call in harness.gateway.calls if str(call).startswith("create events")]
        assert [event.body["note"] for event in events if event.body["reason"] == "OperatorError"] == [words]
        broken[0] = False
        await play(harness, "poison", seconds=120.0)
        record = harness.engine.state.jobs.get(("default", "poison"))  # type: ignore[assignment]
        job = record.job()  # type: ignore[attr-defined]
        assert {c.type: c.status for c in job.status.conditions}["Stalled"] == "False"
        assert job.status.state == "Running"
