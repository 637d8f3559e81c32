"""The operator's counters, fed with status writes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import yaml
from prometheus_client import generate_latest

from builders import edited, job, manifest, record_of, stored
from dtj import __version__
from dtj.api.json import JsonObject
from dtj.api.names import Condition
from dtj.api.status import JobStatus, WorldStatus
from dtj.core.actions import Action
from dtj.core.observed import Phase
from dtj.engine.job_store import JobStore
from dtj.engine.metrics import TABLE, Metrics
from dtj.engine.queue import WorkQueue
from dtj.engine.state import JobCache
from dtj.kube.waiting import Backoff
from world import World

ROOT = Path(__file__).resolve().parents[3]
ALERTS = [
    rule
    for group in yaml.safe_load((ROOT / "charts" / "dtj" / "files" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]

GPU_SECONDS = "dtj_accelerator_seconds_total"


class Counted(World):
    """A world whose status writes are looked at, as the executor does."""

    def __init__(self, **spec: object) -> None:
        super().__init__(job(**spec))  # type: ignore[arg-type]
        self.metrics = Metrics()
        self.cache = JobCache()

    def _carry_out(self, action: Action) -> None:
        before = self.job
        super()._carry_out(action)
        if self.job.status is not before.status:
            self.metrics.note_status(before, self.job.status, cache=self.cache, now=self.now)

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


def running(**spec: object) -> Counted:
    world = Counted(**spec)
    world.wait(2)
    world.advance(30)
    world.all_run()
    return world


def test_how_long_a_start_takes_counts_from_creation() -> None:
    world = running()
    assert world.value("dtj_launch_seconds_sum", until="FirstPod") == 2.0
    assert world.value("dtj_launch_seconds_sum", until="AllReady") == 32.0
    assert world.value("dtj_launch_seconds_count", until="AllReady") == 1


def test_or_from_resumption() -> None:
    world = running()
    for suspend in (True, False):
        world.job = edited(world.job, suspend=suspend)
        world.advance(100)
        world.settle_deletions()
    world.advance(7)
    world.all_run()
    assert world.value("dtj_launch_seconds_count", until="AllReady") == 2
    assert world.value("dtj_launch_seconds_sum", until="AllReady") == 32.0 + 7.0
    assert world.value("dtj_recovery_seconds_count") == 0


def test_a_restart_is_counted_by_its_class_and_its_recovery_is_timed_with_its_backoff() -> None:
    world = running()
    world.sees("worker-1", Phase.FAILED, exit_code=3)
    world.wait(1)
    assert world.value("dtj_restarts_total", **{"class": "user"}) == 1
    assert world.value("dtj_recovery_seconds_count") == 0
    world.advance(9)
    world.all_run()
    assert world.value("dtj_recovery_seconds_count") == 1
    assert world.value("dtj_recovery_seconds_sum") == 10.0


def test_readiness_that_flaps_is_no_recovery() -> None:
    world = running()
    world.pods["digits-worker-0"] = replace(world.pods["digits-worker-0"], ready=False)
    world.settle()
    assert not world.is_true(Condition.PODS_READY)
    world.advance(60)
    world.all_run()
    assert world.is_true(Condition.PODS_READY)
    assert world.value("dtj_recovery_seconds_count") == 0


def test_seconds_of_training_are_counted_once_a_checkpoint_covers_them_or_the_job_has_ended() -> None:
    container = {"name": "trainer", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 4}}}
    world = running(roles={"worker": 2}, template={"spec": {"containers": [container]}})

    def says(replica: str, step: int, saved: int, training: int, *, first: int = 0) -> tuple[float, float]:
        world.advance(100)
        steps = {"step": step, "firstStep": first, "lastCheckpointStep": saved}
        world.hears(replica, phase="Training", seconds={"training": training}, **steps)
        at = {"resource": "nvidia.com/gpu", "state": "training"}
        return world.value("dtj_job_seconds_total", state="training"), world.value(GPU_SECONDS, **at)

    assert says("worker-0", 100, 0, 100) == (0, 0)
    assert says("worker-0", 200, 150, 200) == (150, 8 * 150)
    world.sees("worker-0", Phase.FAILED, exit_code=1)
    world.wait(60)
    world.all_run()
    assert says("worker-0-r1", 160, 150, 10, first=150) == (150, 8 * 150)
    assert world.value("dtj_repeated_steps_total") == 50
    assert world.value("dtj_job_seconds_total", state="repeated") == 50
    world.set_pod("worker-0-r1", Phase.SUCCEEDED)
    world.settle_deletions()
    assert world.value("dtj_job_seconds_total", state="training") == 160
    states = {"resource": "nvidia.com/gpu", "state": "queued"}
    assert (world.value("dtj_job_seconds_total", state="queued"), world.value(GPU_SECONDS, **states)) == (2, 0)


def test_changes_of_the_members_are_counted() -> None:
    world = running(roles={"worker": 3}, elastic={"maxReplicas": 3})
    before, metrics = world.job, world.metrics
    for generation, members in ((1, "0-1"), (2, "0-2"), (2, "0-2")):
        recorded = WorldStatus(generation=generation, members={"worker": members})
        after = before.status.model_copy(update={"world": recorded})
        metrics.note_status(before, after, cache=world.cache, now=world.now)
        before = replace(before, status=after)
    begins_again = before.status.model_copy(update={"world": None})
    metrics.note_status(before, begins_again, cache=world.cache, now=world.now)
    assert world.value("dtj_members_changed_total") == 2


def test_an_end_is_counted_once_by_outcome_and_class() -> None:
    world = running(runPolicy={"backoffLimit": 0})
    world.set_pod("worker-1", Phase.FAILED, exit_code=3)
    for _ in range(3):
        world.settle()
        world.finish_deletions()
    assert world.is_true(Condition.FAILED)
    assert world.value("dtj_jobs_finished_total", outcome="Failed", **{"class": "UserError"}) == 1
    good = running()
    good.set_pod("worker-0", Phase.SUCCEEDED)
    for _ in range(3):
        good.settle()
        good.finish_deletions()
    assert good.value("dtj_jobs_finished_total", outcome="Succeeded", **{"class": "None"}) == 1


def test_a_class_that_somebody_wrote_into_a_status_makes_no_label() -> None:
    failed = {"type": "Failed", "status": "True"}
    after = JobStatus.from_object({"conditions": [failed], "rootCause": {"class": "of mine"}})
    metrics = Metrics()
    metrics.note_status(job(), after, cache=JobCache(), now=World(job()).now + timedelta(seconds=1))
    labels = {"outcome": "Failed", "class": "None"}
    assert metrics.registry.get_sample_value("dtj_jobs_finished_total", labels) == 1
    assert "of mine" not in generate_latest(metrics.registry).decode()


def test_jobs_without_progress_are_counted_and_raise_an_alert() -> None:
    jobs, metrics = JobStore(), Metrics()
    metrics.watch(jobs, WorkQueue(backoff=Backoff(base=1.0, cap=1.0)))
    for name, stalled, failed in (
        ("one", "True", "False"),
        ("two", "Unknown", "False"),
        ("three", "False", "False"),
        ("four", "True", "False"),
        ("five", "True", "True"),
    ):
        conditions = {Condition.PROGRESS_STALLED: stalled, Condition.FAILED: failed}
        status: JsonObject = {"conditions": [{"type": kind, "status": value} for kind, value in conditions.items()]}
        jobs.put(record_of({**stored(manifest(name), uid=name), "status": status}))
    assert metrics.registry.get_sample_value("dtj_jobs_stalled") == 2
    (alert,) = (rule for rule in ALERTS if "dtj_jobs_stalled" in rule["expr"])
    assert Condition.PROGRESS_STALLED in alert["annotations"]["description"]


def test_each_alert_has_a_section_in_the_runbooks() -> None:
    sections = [line for line in (ROOT / "docs" / "runbooks.md").read_text().splitlines() if line.startswith("## Dtj")]
    assert sections == [f"## {rule['alert']}" for rule in ALERTS]


def test_each_alert_says_what_to_do_and_how_bad_it_is() -> None:
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_the_version_of_the_operator_is_a_metric_and_each_kind_of_end_has_a_zero_before_the_first() -> None:
    found = Metrics().registry.get_sample_value
    assert found("dtj_build_info", {"version": __version__}) == 1
    assert found("dtj_jobs_finished_total", {"outcome": "Failed", "class": "Preemption"}) == 0
    assert found("dtj_restarts_total", {"class": "disruption"}) == 0


def test_a_defect_of_each_part_has_a_zero_before_the_first() -> None:
    metrics = Metrics()
    for part in ("pass over a job", "question to a pod", "comparison of step times"):
        assert metrics.registry.get_sample_value("dtj_defects_total", {"part": part}) == 0


def test_an_operator_that_nobody_leads_is_missed_beside_another_release() -> None:
    (alert,) = (rule for rule in ALERTS if rule["alert"] == "DtjNobodyLeads")
    assert alert["expr"] == "sum by (namespace, job) (dtj_leader) == 0 or absent(dtj_leader)"


def test_names_follow_prometheus_conventions() -> None:
    for described in TABLE:
        assert described.name.startswith(("dtj_", "workqueue_"))
        assert "job" not in described.labels
        assert described.kind != "histogram" or described.name.endswith("_seconds")
