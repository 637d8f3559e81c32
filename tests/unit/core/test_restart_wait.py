"""How long a restart waits."""

from __future__ import annotations

from builders import job
from dtj.core.observed import Phase
from world import World, running


def test_the_time_starts_again_after_ten_minutes_of_work() -> None:
    world = running(roles={"worker": 1}, backoffLimit=9)
    for _ in range(5):
        world.fail_worker(3)
    world.advance(600)
    world.sees("worker-0-r5", Phase.FAILED, exit_code=3)
    world.wait(1)
    assert world.job.status.attempt == 7


def test_a_replica_that_comes_back_alone_waits_ever_longer_too() -> None:
    world = World(job(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1})).start()
    world.advance(3600)
    for number, seconds in enumerate((1, 2, 4)):
        world.sees(f"worker-0-r{number}" if number else "worker-0", Phase.FAILED, exit_code=3)
        world.wait(seconds - 0.5)
        assert f"digits-worker-0-r{number + 1}" not in world.pods
        world.wait(0.5)
        assert f"digits-worker-0-r{number + 1}" in world.pods
        world.run_all()


def test_the_longest_wait_holds_as_it_is_recorded_in_whole_seconds() -> None:
    world = running(roles={"worker": 1}, backoffLimit=9)
    for _ in range(6):
        world.fail_worker(3)
    world.wait(0.4)
    world.sees("worker-0-r6", Phase.FAILED, exit_code=3)
    world.wait(59)
    assert world.job.status.attempt == 7
    world.wait(2)
    assert world.job.status.attempt == 8
