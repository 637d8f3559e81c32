"""Who pays for a restart, how often, and what no restart can help."""

from __future__ import annotations

import pytest

from builders import job
from dtj.api.json import dig
from dtj.api.names import Condition, Reason
from dtj.core.observed import Phase
from world import World, running


def reason(world: World) -> str:
    condition = world.job.status.condition(Condition.FAILED)
    return condition.reason if condition is not None and condition.status == "True" else ""


@pytest.mark.parametrize(
    ("role", "policy", "code", "expected"),
    [
        ({}, {}, 1, ""),
        ({"restartPolicy": "ExitCode"}, {}, 1, Reason.FATAL_EXIT_CODE),
        ({"restartPolicy": "ExitCode"}, {}, 139, Reason.FATAL_EXIT_CODE),
        ({"restartPolicy": "ExitCode"}, {}, 3, ""),
        ({"restartPolicy": "ExitCode"}, {"exitCodes": {"retryable": [1]}}, 1, ""),
        ({}, {"exitCodes": {"fatal": [3]}}, 3, Reason.FATAL_EXIT_CODE),
        ({"restartPolicy": "Never"}, {}, 3, Reason.REPLICA_FAILED),
    ],
)
def test_policy_and_exit_code_decide_whether_an_error_is_retried(
    role: dict[str, object], policy: dict[str, object], code: int, expected: str
) -> None:
    world = running(replicaSpecs={"worker": {"replicas": 1, **role}}, **policy)  # type: ignore[arg-type]
    world.fail_worker(code)
    assert reason(world) == expected


def test_success_forgets_the_cause_of_earlier_restarts() -> None:
    world = running(roles={"worker": 1})
    world.fail_worker(3)
    world.sees("worker-0-r1", Phase.SUCCEEDED)
    assert world.is_true(Condition.COMPLETE)
    assert world.job.status.root_cause is None


def test_the_cause_comes_with_what_to_do() -> None:
    world = running(roles={"worker": 1}, backoffLimit=0)
    world.sees("worker-0", Phase.FAILED, exit_code=1, message="ModuleNotFoundError: No module named 'x'")
    assert world.root_cause().hint == (
        "a Python package is missing where the program runs: add it to the image, or to the Python of dtj run"
    )


class TestMoreMemoryAfterOutOfMemory:
    """``runPolicy.onOutOfMemory``: each such restart of a role gives its pods more, up to a most."""

    def world(self, *, increase: int = 50, most: str = "4Gi", limit: str = "1Gi") -> World:
        resources = {"limits": {"memory": limit, "cpu": "1"}, "requests": {"memory": "512Mi"}}
        template = {"spec": {"containers": [{"name": "trainer", "image": "x", "resources": resources}]}}
        policy = {"backoffLimit": 20, "onOutOfMemory": {"increasePercent": increase, "maxMemory": most}}
        return World(job(roles={"chief": 1, "worker": 1}, template=template, runPolicy=policy))

    def run_out(self, world: World, attempt: int) -> None:
        world.start()
        suffix = f"-r{attempt - 1}" if attempt > 1 else ""
        world.set_pod(f"worker-0{suffix}", Phase.FAILED, exit_code=137, reason="OOMKilled")
        world.advance(61)
        world.settle_deletions()

    def memory(self, world: World, pod: str, kind: str = "limits") -> object:
        return dig(world.manifests[f"digits-{pod}"], "spec", "containers", 0, "resources", kind, "memory")

    def test_each_time_more_and_never_more_than_the_most(self) -> None:
        world = self.world(increase=100)
        for attempt in (1, 2, 3):
            self.run_out(world, attempt)
        limits = [self.memory(world, f"worker-0-r{attempt}") for attempt in (1, 2, 3)]
        assert limits == ["2048Mi", "4096Mi", "4096Mi"]

    def test_who_has_more_than_the_most_keeps_it(self) -> None:
        world = self.world(limit="8Gi")
        self.run_out(world, 1)
        assert self.memory(world, "worker-0-r1") == "8Gi"
