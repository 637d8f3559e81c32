"""``dtj tensorboard`` on a cluster where there is nothing to show: one clear line, and an exit code.

That it shows what there is needs a kubelet: tests/e2e.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject
from patience import PATIENCE_SECONDS
from support.job_world import JobWorld
from support.programs import SOURCES

pytestmark = [pytest.mark.api, pytest.mark.usefixtures("operator")]

SHARED: JsonObject = {"claimTemplate": CLAIM_TEMPLATE}
POD = "digits-tensorboard"


def tensorboard(world: JobWorld, *arguments: str) -> tuple[int, str]:
    """Exit code, and all that it reported."""
    place = (f"--namespace={world.namespace}", f"--kubeconfig={world.plane.kubeconfig}")
    done = subprocess.run(
        [sys.executable, "-m", "dtj.cli.main", "tensorboard", *arguments, *place],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout.strip()


def test_of_a_job_that_is_not_there_the_server_is_quoted(world: JobWorld) -> None:
    code, output = tensorboard(world, "flowers")
    assert (code, output) == (4, 'distributedtrainingjobs.training.dtj.dev "flowers" not found')


def test_a_job_without_it_is_reported_with_the_command_that_enables_it(world: JobWorld) -> None:
    world.submit(roles={"worker": 1}, checkpoint=SHARED)
    world.await_state("Starting")
    code, output = tensorboard(world, "digits")
    assert code == 2
    assert output.startswith("digits has no TensorBoard: set spec.tensorBoard: kubectl patch ")
    patch = output.rpartition("'")[0].rpartition("'")[2]
    world.plane.kubectl("patch", "-n", world.namespace, "dtj/digits", "--type=merge", "-p", patch)
    code, output = tensorboard(world, "digits", "--timeout=5")
    assert code == 3
    waits, over = output.splitlines()
    assert waits == "digits is Starting: its TensorBoard starts when all its pods run; waiting"
    assert over.startswith("TensorBoard of digits was not ready within 5 s: digits is Starting")


def test_a_port_that_is_taken_is_reported(world: JobWorld) -> None:
    world.submit(roles={"worker": 1}, checkpoint=SHARED, tensorBoard={})
    world.await_pods(["worker-0"])
    world.run_pod("digits-worker-0")
    world.await_pods(["worker-0", "tensorboard"])
    world.run_pod(POD)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, output = tensorboard(world, "digits", f"--port={port}")
    assert code == 2
    assert output.startswith(f"cannot listen on port {port}: ")
    assert output.endswith("choose another port with --port, or 0 for any")
