"""What the time of a job goes to: ``status.goodput``."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from builders import edited, job
from dtj.api.goodput import Goodput, Seconds, Sums, Use
from dtj.core.actions import PatchStatus
from dtj.core.observed import Phase
from dtj.core.platform import Platform
from dtj.core.policies.goodput import accelerators_of
from support.played_tfjobs import running_tfjob
from world import World, running


def _ledger(world: World) -> Goodput:
    """The job's, which must be there."""
    assert world.job.status.goodput is not None
    return world.job.status.goodput


def _spent(world: World) -> dict[str, int]:
    """The seconds by what they went to, without those of 0."""
    return {str(use): seconds for use, seconds in _ledger(world).seconds.by_use().items() if seconds}


def _says(world: World, step: int, *, saved: int = 0, first: int = 0, **seconds: float) -> None:
    """The leader answers, and the operator writes that down."""
    steps = {"step": step, "lastCheckpointStep": saved, "firstStep": first, "repeatedSteps": 0}
    leader = next(name for name, pod in world.pods.items() if "worker-0" in name and not pod.main_container_ended)
    world.hears(leader.removeprefix(f"{world.job.name}-"), phase="Training", seconds=seconds, **steps)


def _training() -> World:
    """A job whose leader was ready after 6 s, and began to train then."""
    world = World(job(roles={"worker": 2}))
    world.wait(30)
    world.advance(6)
    world.all_run()
    world.advance(4)
    _says(world, 40, starting=6, training=4)
    world.advance(100)
    _says(world, 1040, saved=520, starting=6, training=104)
    return world


def test_what_the_operator_saw_and_what_the_trainer_says_add_up() -> None:
    world = _training()
    assert _spent(world) == {"queued": 30, "starting": 6, "training": 104}
    ledger = _ledger(world)
    assert (ledger.percent, ledger.steps, ledger.covered_seconds) == (94, 1040, 52)


def test_that_time_passes_is_no_reason_to_write() -> None:
    world = _training()
    before, written = _ledger(world), len(world.taken(PatchStatus))
    for second in range(100):
        world.advance(1)
        _says(world, 1040, saved=520, starting=6, training=104 + second)
    assert len(world.taken(PatchStatus)) == written
    assert _ledger(world) == before


def test_a_suspended_job_neither_trains_nor_recovers() -> None:
    world = _training()
    world.job = edited(world.job, suspend=True)
    world.settle_deletions()
    world.advance(1000)
    world.job = edited(world.job, suspend=False)
    world.settle()
    assert _spent(world) == {"queued": 30, "starting": 6, "training": 104, "suspended": 1000}
    assert _ledger(world).percent == 94


def test_a_job_that_is_suspended_trained_until_then_though_its_last_answer_is_older() -> None:
    world = _training()
    world.advance(9)
    world.job = edited(world.job, suspend=True)
    world.settle_deletions()
    assert _spent(world) == {"queued": 30, "starting": 6, "training": 113}
    world.advance(1000)
    world.job = edited(world.job, suspend=False)
    world.settle()
    assert _spent(world) == {"queued": 30, "starting": 6, "training": 113, "suspended": 1000}


def test_a_new_container_repeats_the_steps_since_the_last_checkpoint_with_their_share_of_the_time() -> None:
    world = _training()
    world.sees("worker-0", Phase.FAILED, exit_code=1)
    world.wait(20)
    world.advance(20)
    world.all_run()
    world.advance(10)
    world.hears("worker-0-r1", phase="Building", seconds={"starting": 10})
    world.advance(10)
    _says(world, 620, saved=520, first=520, starting=11, training=9)
    # 520 of 1040 steps are lost, and 52 of 104 s with them. The backoff is 10 s.
    assert _spent(world) == {"queued": 30, "starting": 6, "training": 52 + 9, "repeated": 52, "recovering": 51}
    ledger = _ledger(world)
    assert (ledger.repeated_steps, ledger.steps, ledger.covered_seconds) == (520, 620, 52)


def test_what_a_lost_pod_never_told_is_other() -> None:
    world = _training()
    world.advance(8)
    world.sees("worker-0", Phase.FAILED, exit_code=1)
    assert _spent(world) == {"queued": 30, "starting": 6, "training": 104, "other": 8}


def test_but_its_last_words_count() -> None:
    world = _training()
    world.advance(8)
    words = '{"progress": {"step": 1120, "seconds": {"starting": 6, "training": 111, "checkpointing": 1}}}'
    world.sees("worker-0", Phase.SUCCEEDED, message=words)
    assert _spent(world)["training"] == 111
    assert _spent(world)["checkpointing"] == 1


def test_a_restart_in_place_is_the_trainers_to_tell() -> None:
    world = _training()
    world.advance(20)
    sums = {"starting": 6, "training": 60, "repeated": 52, "recovering": 12}
    world.hears("worker-0", phase="Training", step=600, firstStep=0, repeatedSteps=520, seconds=sums)
    assert _spent(world) == {"queued": 30, **sums}
    ledger = _ledger(world)
    assert (ledger.repeated_steps, ledger.steps) == (520, 600)


def test_a_restart_in_place_may_be_told_before_its_first_step() -> None:
    world = _training()
    world.advance(20)
    sums = {"starting": 6, "training": 60, "repeated": 52, "recovering": 12}
    world.hears("worker-0", phase="Training", firstStep=0, repeatedSteps=520, seconds=sums)
    world.advance(20)
    world.hears(
        "worker-0", phase="Training", step=600, firstStep=0, repeatedSteps=520, seconds={**sums, "training": 80}
    )
    ledger = _ledger(world)
    assert (ledger.repeated_steps, ledger.steps) == (520, 600)


def test_a_hang_that_ends_with_a_restart_in_place_recovers_and_repeats_nothing() -> None:
    world = _training()
    world.advance(40)
    _says(world, 1041, saved=520, starting=6, training=144)
    world.advance(20)
    _says(world, 1042, saved=520, starting=6, training=105, recovering=59)
    assert _spent(world) == {"queued": 30, "starting": 6, "training": 105, "recovering": 59}


def test_a_script_that_trains_again_from_0_adds_to_the_steps() -> None:
    world = _training()
    world.advance(10)
    _says(world, 60, saved=520, starting=6, training=114)
    assert (_ledger(world).steps, _ledger(world).repeated_steps) == (1100, 0)
    world.advance(10)
    _says(world, 160, saved=520, starting=6, training=124)
    assert (_ledger(world).steps, _ledger(world).repeated_steps) == (1200, 0)


def test_the_ledger_of_a_restored_job_goes_on_from_where_it_was() -> None:
    world = _training()
    before = _ledger(world).seconds.total
    world.now += timedelta(days=1)
    world.job = replace(world.job, created_at=world.now)
    world.advance(50)
    _says(world, 1540, saved=520, starting=6, training=154)
    assert _ledger(world).seconds.total == before + 50


def test_no_second_counts_twice_when_the_clock_is_set_back() -> None:
    world = _training()
    before = _ledger(world)
    world.now -= timedelta(seconds=60)
    _says(world, 1041, saved=1041, starting=6, training=104)
    assert (_ledger(world).seconds.total, _ledger(world).updated_at) == (before.seconds.total, before.updated_at)
    world.advance(70)
    _says(world, 1140, saved=1140, starting=6, training=114)
    assert _ledger(world).seconds.total == before.seconds.total + 10


def test_time_of_an_image_that_says_nothing_of_it_is_other_after_a_minute() -> None:
    world = running(seconds=0)
    for minute in range(1, 4):
        world.advance(50)
        world.hears("worker-0", phase="Training", step=minute)
    assert _spent(world) == {"other": 100}
    assert _ledger(world).percent is None


def test_a_training_that_ends_before_it_is_asked_has_its_last_words_alone() -> None:
    world = running(seconds=20)
    world.sees("worker-1", Phase.SUCCEEDED)
    words = '{"progress": {"step": 50, "firstStep": 0, "seconds": {"starting": 5, "training": 12}}}'
    world.sees("worker-0", Phase.SUCCEEDED, message=words)
    world.settle_deletions()
    assert _spent(world) == {"starting": 8, "training": 12}


def test_a_stall_is_no_training_whatever_its_pods_say() -> None:
    world = running(seconds=0, stallTimeoutSeconds=60)
    _says(world, 5, starting=1, training=5)
    world.stands_still("worker-0", phase="Training", step=5, seconds={"starting": 1, "training": 66})
    before = _spent(world)
    world.advance(100)
    _says(world, 6, starting=1, training=166)
    assert _spent(world)["stalled"] == 100
    assert _spent(world)["training"] == before["training"]


def test_a_restart_in_place_after_a_stall_takes_back_only_what_counted_as_training() -> None:
    world, stands = running(seconds=5, stallTimeoutSeconds=60), {"phase": "Training", "step": 5}
    _says(world, 5, training=5)
    world.stands_still("worker-0", **stands, seconds={"training": 66})
    assert _spent(world) == {"training": 66}
    world.advance(100)
    world.hears("worker-0", **stands, warning="a line", seconds={"training": 166})
    assert _spent(world) == {"training": 66, "stalled": 100}
    world.advance(10)
    _says(world, 6, training=7, recovering=169)
    # It says 160 s of the hang, of which 100 have never counted as training.
    assert _spent(world) == {"training": 7, "recovering": 59, "stalled": 110}


def test_the_ledger_of_an_ended_job_is_final() -> None:
    world = _training()
    world.sees("worker-0", Phase.SUCCEEDED)
    world.sees("worker-1", Phase.SUCCEEDED)
    world.settle_deletions()
    ledger = _ledger(world)
    assert world.job.status.completion_time == ledger.updated_at
    assert ledger.covered_seconds == ledger.seconds.training == 104
    world.wait(100)
    assert _ledger(world) == ledger


def test_a_tfjob_has_none() -> None:
    assert running_tfjob().job.status.goodput is None


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ({"seconds": {"training": 1.9, "input": -1, "nonsense": 5, "queued": 7}}, {"training": 1}),
        ({"seconds": {"training": float("nan"), "input": float("inf"), "repeated": 10**400, "starting": True}}, None),
        ({"seconds": {"training": 3, "validating": "4", "recovering": [5]}, "firstStep": -1}, {"training": 3}),
        ({"seconds": [1]}, None),
        ({"seconds": {}, "repeatedSteps": 5}, None),
        (None, None),
    ],
)
def test_of_an_answer_what_makes_no_sense_is_left_out(answer: object, read: dict[str, int] | None) -> None:
    sums = Sums.from_object(answer)
    found = {str(use): number for use, number in sums.seconds.by_use().items() if number} if sums is not None else None
    assert found == read
    assert sums is None or sums.first_step is None


def test_accelerators_are_those_that_the_pods_ask_for() -> None:
    limits = {"nvidia.com/gpu": 2, "example.com/thing": 5}
    container = {"name": "trainer", "image": "x", "resources": {"limits": limits}}
    by_template = job(roles={"worker": 3}, template={"spec": {"containers": [container]}})
    assert accelerators_of(by_template, Platform()) == {"nvidia.com/gpu": 6}
    assert accelerators_of(job(roles={"worker": 2, "evaluator": 1}), Platform()) == {}
    assert accelerators_of(replace(by_template, spec=None), Platform()) == {}


@pytest.mark.parametrize(
    ("asked", "counted"), [(str(2**63 - 1), {"nvidia.com/gpu": 2 * 1024}), ("9" * 5000, {})], ids=["2^63", "10^5000"]
)
def test_a_job_that_no_node_can_hold_adds_little_to_the_metric_of_all(asked: str, counted: dict[str, int]) -> None:
    container = {"name": "trainer", "image": "x", "resources": {"limits": {"nvidia.com/gpu": asked}}}
    huge = job(roles={"worker": 2}, template={"spec": {"containers": [container]}})
    assert accelerators_of(huge, Platform()) == counted


def test_of_a_topology_that_is_no_shape_the_chips_of_a_host_count() -> None:
    odd = job(strategy="TPU", roles={"worker": 1}, accelerator={"profile": "tpu-v5e", "topology": "axb"})
    assert accelerators_of(odd, Platform()) == {"google.com/tpu": 4}


def test_no_sum_of_seconds_is_more_than_a_status_may_hold() -> None:
    assert Seconds.of({Use.TRAINING: 10**11 + 1}).training == 10**11
