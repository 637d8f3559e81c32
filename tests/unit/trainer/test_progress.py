"""Progress: the line, the document, the rates, the schedule and the start of the trainer, without TensorFlow."""

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dtj_launch import progress
from dtj_launch.progress import Meter, Phase, Progress, ProgressStore
from dtj_trainer.periodic import ComputeTimer, Every, EverySteps
from dtj_trainer.process.environment import cpu_limit, reach_tasks_directly, set_threads
from dtj_trainer.process.task_context import Startup
from dtj_trainer.progress_line import progress_line, short_number, short_time
from dtj_trainer.training.stepping import Course, steps_within

MOMENT = Progress(
    phase=Phase.TRAINING,
    step=450,
    total_steps=1000,
    epoch=3,
    epochs=5,
    examples_per_second=12345.6,
    eta_seconds=62.3,
    metrics={"loss": 0.41234, "accuracy": 0.912},
    last_checkpoint_step=400,
)


def test_the_line_is_as_people_like_to_read_it() -> None:
    assert progress_line(MOMENT) == (
        "step 450/1000 (45%)  epoch 3/5  loss 0.4123  accuracy 0.912  12.3k examples/s  ETA 1m02s"
    )


def test_the_document_holds_text_for_metrics_and_nothing_that_is_not_known() -> None:
    noon = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
    assert MOMENT.document(noon) == {
        "phase": "Training",
        "step": 450,
        "totalSteps": 1000,
        "epoch": 3,
        "percent": 45,
        "etaSeconds": 62,
        "examplesPerSecond": 12345.6,
        "metrics": {"loss": "0.4123", "accuracy": "0.912"},
        "lastCheckpointStep": 400,
        "updatedAt": "2026-05-04T12:00:00Z",
    }
    assert Progress().document(noon) == {"phase": "Gate", "updatedAt": "2026-05-04T12:00:00Z"}


def test_the_document_holds_a_warning() -> None:
    assert Progress(warning="trains alone").document(datetime.now(UTC))["warning"] == "trains alone"


def test_the_document_holds_a_few_names_of_what_is_accepted_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ProgressStore()
    monkeypatch.setattr(progress._publisher, "store", store)
    assert "unchecked" not in store.document()
    for name in ("a" * 300, "train_step", "train_step", *map(str, range(20))):
        progress.show_unchecked(name)
    assert store.document()["unchecked"] == ["a" * 253, "train_step", *map(str, range(6))]


def test_a_metric_of_several_numbers_is_shown_as_each_of_them_and_one_of_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ProgressStore()
    monkeypatch.setattr(progress, "_publisher", progress._Publisher())
    progress.publish_on(store)
    by_class = {"f1_score": [0.5, 0.25], "matrix": [(1, 2), (3, 4)], "empty": []}
    others = {"name": "a text", "none": None, "loss": 0.125, "nested": {"mae": 1.5}}
    progress.report(step=7, total=10, metrics={**by_class, **others})
    assert (store.progress.step, progress._publisher.warned) == (7, False)
    assert store.progress.metrics == {
        "loss": 0.125, "mae": 1.5, "f1_score_0": 0.5, "f1_score_1": 0.25,
        "matrix_0": 1, "matrix_1": 2, "matrix_2": 3, "matrix_3": 4,
    }  # fmt: skip


def test_of_more_metrics_than_the_operator_takes_the_first_are_in_the_document_and_all_in_the_exposition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = ProgressStore()
    monkeypatch.setattr(progress, "_publisher", progress._Publisher())
    progress.publish_on(store)
    progress.report(step=7, metrics={"each": range(1000), "loss": 0.5})
    assert list(store.document()["metrics"]) == ["loss", *(f"each_{index}" for index in range(31))]
    assert store.exposition().count('dtj_training_metric{name="') == 101


def test_the_exposition_is_what_prometheus_reads() -> None:
    noon = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
    moment = Progress(phase=Phase.TRAINING, step=450, metrics={"loss": float("nan"), 'a "b"\\c\nd': 0.5})
    lines = moment.exposition(noon).splitlines()
    values = [line for line in lines if not line.startswith("#")]
    assert values == [
        "dtj_training_step 450",
        'dtj_training_phase{phase="Training"} 1',
        'dtj_training_metric{name="loss"} NaN',
        r'dtj_training_metric{name="a \"b\"\\c\nd"} 0.5',
        f"dtj_training_updated_timestamp_seconds {noon.timestamp()}",
    ]
    for line in values:
        name = line.partition("{")[0].partition(" ")[0]
        assert f"# TYPE {name} gauge" in lines


def test_the_line_says_what_is_known() -> None:
    assert progress_line(Progress(step=7, metrics={"loss": 0.5})) == "step 7  loss 0.5000"
    assert progress_line(Progress(step=7, total_steps=9, epoch=2)) == "step 7/9 (77%)  epoch 2"


def test_only_the_last_step_is_a_hundred_percent() -> None:
    assert Progress(step=999, total_steps=1000).percent == 99
    assert Progress(step=1000, total_steps=1000).percent == 100
    assert Progress(step=1010, total_steps=1000).percent == 100


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (7.254, "7.25"), (99.94, "99.9"), (843, "843"), (999.6, "1.0k"), (12345, "12.3k"), (2.5e6, "2.5M")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0s"), (59.4, "59s"), (59.6, "1m00s"), (62, "1m02s"), (3900, "1h05m"), (187200, "2d04h")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert short_time(seconds) == text


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rates_leave_the_first_call_out_and_follow_the_last_seconds() -> None:
    clock = Clock()
    meter = Meter(batch=10, step=100, clock=clock)
    assert meter.examples_per_second is None
    for now, step in ((30.0, 120), (31.0, 140), (32.0, 160)):
        clock.now = now
        meter.mark(step)
    assert meter.examples_per_second == pytest.approx(200)
    assert meter.eta(200) == pytest.approx(2.0)
    for second in range(60):
        clock.now = 33.0 + second
        meter.mark(161 + second)
    assert meter.examples_per_second == pytest.approx(10)
    assert meter.overall_examples_per_second == pytest.approx(10 * (220 - 120) / 62)


def test_a_workers_own_part_of_a_step_is_what_it_does_not_wait() -> None:
    clock = Clock()
    part = ComputeTimer(clock=clock)
    clock.now = 30.0  # the first call traces
    assert part.mark(20, waited=5.0) is None
    clock.now = 34.0
    assert part.mark(22, waited=8.0) == pytest.approx(0.5)
    for call in range(1, 31):
        clock.now += 2.0
        own = part.mark(22 + call, waited=8.0 + call * 0.5)
    assert own == pytest.approx(1.5)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_while_a_worker_waits_spoils_one_call(jump: float) -> None:
    clock = Clock()
    part = ComputeTimer(clock=clock)
    part.mark(0, waited=0.0)
    for call in range(1, 60):
        clock.now += 2.0
        own = part.mark(call, waited=call * 1.0 + (jump if call > 3 else 0.0))
        assert own is None or 0 < own <= 2.0
    assert own == pytest.approx(1.0)


def test_a_period_is_due_once() -> None:
    clock = Clock()
    every = Every(5.0, clock=clock)
    due = []
    for second in range(12):
        clock.now = float(second)
        due.append(every.due())
    assert [second for second, now in enumerate(due) if now] == [5, 10]
    assert not Every(None).due()


def test_a_period_that_has_begun_may_become_longer_or_shorter() -> None:
    clock = Clock()
    every = Every(5.0, clock=clock)
    clock.now, every.seconds = 7.0, 8.0
    assert not every.due()
    every.seconds = 6.0
    assert every.due()


def test_a_call_of_steps_ends_at_checkpoints_at_the_end_and_in_time() -> None:
    checkpoints = EverySteps(40, 113)
    saved, step = [], 0
    while step < 113:
        step += min(15, checkpoints.steps_until_due(step))
        if checkpoints.is_due(step):
            saved.append(step)
    assert saved == [40, 80, 113]
    assert checkpoints.was_due(39, 42)
    assert not checkpoints.was_due(40, 42)
    assert steps_within(20, None) == 20
    assert steps_within(20, 10.0) == 5
    assert steps_within(20, 0.1) == 1


def test_epochs_of_whole_steps_that_are_fewer_than_asked_for_are_said() -> None:
    assert Course(examples=64, epochs=10, batch=64).describe_whole_epochs() is None
    assert Course(examples=65, epochs=10, batch=64).describe_whole_epochs() == (
        "--epochs=10: validations count 6 epochs, of 2 whole steps each; the 65 examples are 1.02 steps of 64: "
        "give a batch size that divides them if each epoch has to count"
    )


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_threads_follow_the_quota_of_the_container(tmp_path: Path, files: dict[str, str], cpus: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    unlimited = cpu_limit(tmp_path / "nowhere")
    assert cpu_limit(tmp_path) == (unlimited if cpus is None else cpus)


@pytest.mark.parametrize(("workers", "threads"), [(0, None), (4096, "128")])
def test_more_operations_run_at_a_time_than_the_cluster_has_tasks(workers: int, threads: str | None) -> None:
    """Tasks that wait for each other on one CPU would wait forever."""
    tasks = {"ps": ["a:1"], "worker": [f"b{number}:1" for number in range(workers)]}
    environ = {"TF_CONFIG": json.dumps({"cluster": tasks, "task": {"type": "ps", "index": 0}})} if workers else {}
    set_threads(environ)
    assert environ.get("TF_NUM_INTEROP_THREADS") == threads
    environ["TF_NUM_INTEROP_THREADS"] = "3"
    set_threads(environ)
    assert environ["TF_NUM_INTEROP_THREADS"] == "3"


def test_each_part_of_the_start_is_reported_with_the_seconds_that_it_took() -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    moments = iter([now + 2.0, now + 2.5])
    startup = Startup(clock=lambda: next(moments))
    startup.lap("import")
    startup.lap("gate")
    found = re.fullmatch(r"start [\d.]+ s: import ([\d.]+), gate 0\.5", startup.summary())
    assert found is not None, startup.summary()
    assert float(found[1]) >= 2.0  # the process began before the stopwatch was made


def test_the_whole_is_the_time_since_the_process_began() -> None:
    startup = Startup()
    startup.lap("all")
    whole, part = re.findall(r"[\d.]+", startup.summary())
    assert whole == part
    assert float(whole) > 0


@pytest.mark.parametrize(
    ("given", "around"),
    [
        ({"http_proxy": "http://proxy:3128"}, "job.team.svc"),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.0/8,.corp"}, "10.0.0.0/8,.corp,job.team.svc"),
        ({"grpc_proxy": "http://proxy:3128", "no_proxy": "a", "no_grpc_proxy": "b"}, "b,job.team.svc"),
        ({"http_proxy": "http://p:1", "TF_CONFIG": '{"cluster": {"worker": ["10.0.0.1:1", "w:1"]}}'}, "10.0.0.1,w"),
        ({"http_proxy": "http://p:1", "TF_DATA_SERVICE_ADDRESS": "d.x:1", "TF_CONFIG": ""}, "x"),
        ({"no_proxy": "a"}, None),
    ],
)
def test_the_tasks_of_a_job_are_reached_without_the_proxy_that_other_hosts_need(
    given: dict[str, str], around: str | None
) -> None:
    workers = [f"job-worker-{index}.job.team.svc:2222" for index in range(2)]
    environ = {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}}), **given}
    for _ in range(2):  # by the launcher, and by what it forks
        reach_tasks_directly(environ)
    assert environ.get("no_grpc_proxy") == around
