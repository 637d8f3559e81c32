"""Upgrade and rollback of operator and CRD while jobs run, in both directions, on a real API server.

The older state is that of `support.older_release`. With the chart and a real node: tests/e2e/test_release.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dtj.api.json import dig
from dtj.api.names import Condition
from patience import PATIENCE_SECONDS
from support.job_world import JobWorld
from testbed import ControlPlane

NEW = Path(__file__).parents[2]
ROLES = {"running": {"worker": 2}, "served": {"chief": 1, "worker": 1, "ps": 1}}
"""Jobs that run from the first operator to the last, with their replicas."""


@contextmanager
def installed(source: Path, world: JobWorld, log: Path) -> Iterator[None]:
    """The CRD and the operator of a state of this project. The operator ends as in a rolling update."""
    world.plane.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(source / "crds"))
    command = [
        sys.executable, "-m", "dtj.app.main", f"--kubeconfig={world.plane.kubeconfig}", "--health-port=0",
        "--metrics-port=0", f"--namespace={world.namespace}",
    ]  # fmt: skip
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DTJ_OPERATOR_")}
    with log.open("ab") as file:
        process = subprocess.Popen(
            command, env={**environ, "PYTHONPATH": str(source / "operator")}, stdout=file, stderr=file
        )
        try:
            yield
            process.terminate()
            assert process.wait(PATIENCE_SECONDS) == 0, log.read_text()
        except AssertionError:
            print(log.read_text())
            raise
        finally:
            process.kill()
            process.wait()


def uids(world: JobWorld) -> dict[str, object]:
    return {name: uid for job in ROLES for name, uid in world.uids(job).items()}


def await_work(world: JobWorld, name: str) -> None:
    """Wait until a job that is new to the operator runs: it has seen all others by then."""
    world.run(name, roles={"worker": 1}, strategy="OneDevice")


@pytest.mark.parametrize("order", ["upgrade and rollback", "rollback and upgrade"])
def test_no_pod_of_a_running_job_is_touched_and_the_jobs_complete(
    own_control_plane: ControlPlane, older_state: Path, tmp_path: Path, order: str
) -> None:
    first, second = (older_state, NEW) if order.startswith("upgrade") else (NEW, older_state)
    world = JobWorld.new(own_control_plane)
    with installed(first, world, tmp_path / "1.log"):
        world.submit("running", roles=ROLES["running"])
        world.submit("served", roles=ROLES["served"], strategy="ParameterServer")
        for name, roles in ROLES.items():
            world.await_pods([f"{role}-{index}" for role, count in roles.items() for index in range(count)], name)
            world.run_pods(name)
            world.await_state("Running", name)
    before = uids(world)
    with installed(second, world, tmp_path / "2.log"):
        await_work(world, "second")
        assert {world.job(name).status.state for name in ROLES} == {"Running"}
    assert uids(world) == before
    with installed(first, world, tmp_path / "3.log"):
        await_work(world, "third")
        assert uids(world) == before
        # These decide the outcome; the operator stops the others.
        for pod in ("running-worker-0", "served-chief-0", "second-worker-0", "third-worker-0"):
            world.end_pod(pod, exit_code=0)
        for name in (*ROLES, "second", "third"):
            world.await_condition(Condition.COMPLETE, name)
    for name in ROLES:
        status = world.body(name)["status"]
        assert (dig(status, "attempt"), dig(status, "restarts", "total")) == (1, 0)
