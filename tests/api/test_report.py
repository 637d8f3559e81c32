"""``dtj report`` against a real API server: a bundle of what is there, and an honest list of what is not."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from dtj.api.json import JsonObject
from support.job_world import JobWorld
from support.operator_process import OperatorProcess

pytestmark = pytest.mark.api

SECRET = "correct-horse-battery"
TEMPLATE: JsonObject = {
    "spec": {
        "containers": [
            {"name": "trainer", "image": "example/trainer:1", "env": [{"name": "API_TOKEN", "value": SECRET}]}
        ]
    }
}


def dtj(world: JobWorld, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as a person types it."""
    place = ["--kubeconfig", str(world.plane.kubeconfig), "-n", world.namespace]
    return subprocess.run(
        [sys.executable, "-m", "dtj.cli.main", "report", *map(str, arguments), *place],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def unpacked(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        members = ((member, archive.extractfile(member)) for member in archive)
        return {member.name: found.read().decode() for member, found in members if found is not None}


def test_a_job_that_failed_is_reported_whole(world: JobWorld, operator: OperatorProcess, tmp_path: Path) -> None:
    world.submit(template=TEMPLATE, runPolicy={"backoffLimit": 0})
    world.await_pods(["worker-0", "worker-1"])
    world.run_pods()
    world.await_state("Running")
    world.end_pod("digits-worker-1", exit_code=1, message=f"token {SECRET}\nValueError: bad record")
    world.await_state("Failed")
    world.eventually(lambda: events_told(world))

    done = dtj(world, "digits", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Wrote dtj-report-digits.tar.gz: ")
    found = unpacked(tmp_path / "dtj-report-digits.tar.gz")
    folder = "dtj-report-digits"
    assert found.keys() >= {
        f"{folder}/{name}"
        for name in ("INDEX", "page.html", "job.yaml", "events.txt", "service.yaml", "pods/digits-worker-1.yaml")
    }
    assert all(SECRET not in content for content in found.values())
    # There is no kubelet here: that there are no logs is said.
    assert "  log of digits-worker-1: " in found[f"{folder}/INDEX"]
    assert "FatalExitCode" in found[f"{folder}/events.txt"] or "BackoffLimit" in found[f"{folder}/events.txt"]

    assert dtj(world, "digits", "--html", folder=tmp_path).returncode == 0
    page = (tmp_path / "dtj-report-digits.html").read_text()
    for words in ("What went wrong", "worker-1", "ValueError: bad record", "Timeline"):
        assert words in page


def events_told(world: JobWorld) -> None:
    assert len(world.events()) >= 2


def test_a_job_that_is_not_there_is_one_line_and_exit_code_4(world: JobWorld, tmp_path: Path) -> None:
    done = dtj(world, "nobody", folder=tmp_path)
    assert done.returncode == 4
    assert 'distributedtrainingjobs.training.dtj.dev "nobody" not found' in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
