"""``dtj report`` against a real API server: a page of what is there, and an honest list of what is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dtj.api.json import JsonObject
from support.command_line import typed
from support.job_evidence import SECRET
from support.job_world import JobWorld
from support.kubelet_logs import KubeletLogs
from support.waiting import eventually_true

TEMPLATE: JsonObject = {
    "spec": {
        "containers": [
            {"name": "trainer", "image": "example/trainer:1", "env": [{"name": "API_TOKEN", "value": SECRET}]}
        ]
    }
}


def words_of(page: Path) -> str:
    """The text of a page, without its tags."""
    return re.sub(r"<[^>]*>", " ", page.read_text())


def fail(world: JobWorld) -> None:
    """A job of two workers of which one fails."""
    world.run(template=TEMPLATE, runPolicy={"backoffLimit": 0, "cleanPodPolicy": "None"})
    world.end_pod("digits-worker-1", exit_code=1, message=f"token {SECRET}\nValueError: bad record")
    world.await_state("Failed")
    eventually_true(lambda: len(world.events()) >= 2)


@pytest.mark.usefixtures("operator")
def test_a_job_that_failed_is_reported_whole(
    world: JobWorld, kubelet: KubeletLogs, log_reader: Path, tmp_path: Path
) -> None:
    fail(world)
    for step, loss, second in ((20, 2.3, 1), (40, 1.1, 6)):
        line = {"progress": {"step": step, "metrics": {"loss": str(loss)}}}
        kubelet.say("digits-worker-0", json.dumps(line), second=second)
    kubelet.say("digits-worker-1", f"the token is {SECRET}", second=7)
    page = tmp_path / "digits.html"
    done = typed(world.plane, world.namespace, "report", "digits", "--logs", "-o", page, kubeconfig=log_reader)
    assert done.return_value == 0, done.output
    assert done.output.startswith(f"Wrote {page}: ")
    assert SECRET not in page.read_text()
    assert "polyline" in page.read_text()
    shown = words_of(page)
    assert " the token is (redacted)" in shown
    assert "its Service" not in shown, "it goes with the end of the job"
    for words in ("What went wrong", "ValueError: bad record", "Timeline", "loss", "PodsCreated"):
        assert words in shown
    for index in (0, 1):
        assert f"name: digits-worker-{index}" in shown, "among the objects"
