"""A run on this machine, with real processes, and the report on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtj.api.json import JsonObject
from dtj.cli.report.history import Look, history
from dtj.cli.report.page import render_page
from dtj.cli.report.run import gather
from dtj.cli.report.view import page_view
from dtj.local import run_directory
from dtj.local.run_directory import RunDirectory
from dtj.local.runner import LocalRun
from dtj.local.view import RunView
from support.local_runs import python_job, run_locally

pytestmark = pytest.mark.unit


async def run(body: JsonObject, runs: Path, **more: Any) -> RunDirectory:
    """Run a job, and leave its manifest beside it as `dtj run` does; where it was run."""
    await run_locally(body, runs, **more)
    directory = run_directory.find("tiny", runs)
    directory.manifest.write_text(yaml.safe_dump(body))
    return directory


async def test_a_report_knows_the_pods_of_all_attempts_and_why_the_run_failed(tmp_path: Path) -> None:
    code = "import os, sys; sys.exit('boom of attempt ' + os.environ['DTJ_ATTEMPT'])"
    known = gather(await run(python_job(code, roles={"worker": 1}, runPolicy={"backoffLimit": 1}), tmp_path))
    assert known.unread == ()
    rows = history(known).rows
    assert [row.name for row in rows] == ["attempt 1", "attempt 2", "worker-0", "worker-0-r1"]
    assert all(row.failed for row in rows[2:])
    view = page_view(known)
    assert (view.state, view.restarts) == ("Failed", (("error", 1),))
    assert "boom of attempt 2" in render_page(view)


async def test_a_run_that_was_stopped_is_shown_as_stopped_and_its_clock_stands_still(tmp_path: Path) -> None:
    def stop(view: RunView, running: LocalRun) -> None:
        if view.state == "Running":
            running.stop()

    directory = await run(python_job("import time; time.sleep(60)", roles={"worker": 2}), tmp_path, show=stop)
    known = gather(directory)
    view = page_view(replace(known, taken_at=known.taken_at + timedelta(hours=1)))
    assert (view.state, view.look) == ("Stopped", Look.STOPPED)
    facts = dict(view.facts)
    assert "ready" not in facts
    assert "so far" not in facts
    assert "took" in facts
    span = view.history.span
    assert span is not None
    assert span[1] - span[0] < timedelta(minutes=2)
    attempt = view.history.rows[0].bars[-1]
    assert (attempt.look, attempt.words) == (Look.STOPPED, "Stopped")


async def test_a_run_that_is_resumed_does_not_show_the_end_of_the_one_before(tmp_path: Path) -> None:
    directory = await run(python_job("", roles={"worker": 1}), tmp_path)
    assert page_view(gather(directory)).state == "Succeeded"
    run_directory.latest(tmp_path, job="tiny")
    assert page_view(gather(directory)).state == "not known"
