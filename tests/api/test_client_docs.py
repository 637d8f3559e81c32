"""The Python of docs/client.md, run as a reader would run it, with a kubelet that is played."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dtj.api.json import dig
from patience import PATIENCE_SECONDS
from support.command_line import environment
from support.job_world import JobWorld
from support.kubeconfigs import copied
from support.snippets import ROOT, blocks
from testbed import ApiError

SNIPPETS = [block.text for block in blocks(ROOT / "docs/client.md") if block.language == "python"]

ENDS_BY_ITSELF = ("digits", "fit-")
"""How the names of jobs begin that end by themselves; the others run until they are stopped."""


@pytest.fixture
def kubelet(world: JobWorld) -> Iterator[None]:
    """Runs each pod, and ends the worker that decides of jobs that end by themselves."""
    over = threading.Event()

    def play() -> None:
        while not over.wait(0.05):
            with suppress(ApiError):  # a pod has gone since it was listed, or the server asks for patience
                for job in world.jobs():
                    play_job(str(dig(job, "metadata", "name")))

    def play_job(name: str) -> None:
        for pod, body in world.pods(name).items():
            phase = dig(body, "status", "phase")
            if phase == "Pending":
                world.run_pod(pod)
            elif phase == "Running" and name.startswith(ENDS_BY_ITSELF) and pod.startswith(f"{name}-worker-0"):
                world.end_pod(pod, exit_code=0)

    thread = threading.Thread(target=play)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.usefixtures("operator", "kubelet")
@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_of_the_document_runs(number: int, world: JobWorld, tmp_path: Path) -> None:
    kubeconfig = copied(world.plane.kubeconfig, tmp_path, namespace=world.namespace)
    script = tmp_path / "snippet.py"
    script.write_text(SNIPPETS[number])
    done = subprocess.run(
        [sys.executable, script],
        cwd=ROOT,
        env=environment(KUBECONFIG=str(kubeconfig)),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert world.jobs() == [], "each snippet cleans up what it has made"


def test_the_document_has_snippets() -> None:
    assert SNIPPETS
