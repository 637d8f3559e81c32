"""A run on this machine, with real processes, and the report on it."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from builders import at
from dtj import __version__
from dtj.api.job import parse_time
from dtj.api.json import JsonObject, dig
from dtj.api.spec import JobSpec, Role
from dtj.api.status import Progress
from dtj.cli.report.evidence import Evidence, Log, PhaseChange, versions_of
from dtj.cli.report.page import render_page
from dtj.cli.report.run import gather
from dtj.cli.report.timeline import History, Look, history
from dtj.core.replicas import Replica
from dtj.local import run_directory
from dtj.local.ports import local_network
from dtj.local.run_directory import RunDirectory
from dtj.local.run_record import Recorder
from dtj.local.runner import LocalRun
from dtj.local.trainer import Trainer
from dtj.local.view import ReplicaView, RunView
from support.local_runs import python_job, run_locally


async def run(body: JsonObject, runs: Path, **more: Any) -> RunDirectory:
    """Run a job, and leave its manifest next to it as `dtj run` does; where it was run."""
    await run_locally(body, runs, **more)
    directory = run_directory.find("tiny", runs)
    directory.manifest.write_text(yaml.safe_dump(body))
    return directory


def state(known: Evidence) -> tuple[str, ...]:
    """How the state looks on the page, and what it says."""
    found = re.search(r'<span class="badge (\w+)">(\w+)</span>', render_page(known))
    assert found is not None
    return found.groups()


def facts(known: Evidence) -> dict[str, str]:
    """What the page names."""
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", render_page(known)))


def history_of(known: Evidence) -> History:
    found = history(known)
    assert found is not None
    return found


async def test_a_report_knows_the_pods_of_all_attempts_and_why_the_run_failed(tmp_path: Path) -> None:
    code = "import os, sys; sys.exit('boom of attempt ' + os.environ['DTJ_ATTEMPT'])"
    known = gather(await run(python_job(code, roles={"worker": 1}, runPolicy={"backoffLimit": 1}), tmp_path))
    assert known.unread == ()
    found = history_of(known)
    ((name, _, bars),) = found.rows
    ends = [bar.words for bar in bars if bar.look is Look.FAILED]
    assert (name, ends) == ("worker-0", ["exited with code 1", "exited with code 1"])
    assert [words[:10] for _, words in found.restarts] == ["attempt 2:"]
    assert state(known) == ("failed", "Failed")
    assert facts(known)["restarts"] == "1 (1 error)"
    assert "boom of attempt 2" in render_page(known)


async def test_a_run_that_was_stopped_is_shown_as_stopped_and_its_clock_stands_still(tmp_path: Path) -> None:
    def stop(view: RunView, running: LocalRun) -> None:
        if view.state == "Running":
            running.stop()

    directory = await run(python_job("import time; time.sleep(60)", roles={"worker": 2}), tmp_path, show=stop)
    known = gather(directory)
    known = replace(known, taken_at=known.taken_at + timedelta(hours=1))
    assert state(known) == ("stopped", "Stopped")
    assert "took" in facts(known)
    assert facts(known).keys().isdisjoint({"ready", "so far"})
    assert history_of(known).ran_seconds < 3_000, "the hour after its end does not count"


async def resume(body: JsonObject, runs: Path) -> RunDirectory:
    """The same run, started once more, as `dtj run --resume` does it."""
    directory = run_directory.latest(runs, job="tiny")
    assert directory is not None
    run_directory.prepare_again(directory)
    with local_network(JobSpec.model_validate(body["spec"])) as network:
        trainer = Trainer(Path(sys.executable), versions=(("keras", "3.99"),))
        command = ("dtj", "run", "--resume", "job.yaml")
        running = LocalRun(
            body, directory=directory, network=network, trainer=trainer, environ=os.environ, command=command
        )
        await running.run(lambda view: None)
    return directory


async def test_a_run_that_was_resumed_is_one_story_and_names_what_it_was_started_with(tmp_path: Path) -> None:
    first = await run(python_job("raise SystemExit(3)", roles={"worker": 1}), tmp_path)
    for file in (first.record, first.objects):
        file.write_text(re.sub(r'"(\d{4})(?=-\d\d-\d\dT)', lambda year: f'"{int(year[1]) - 4}', file.read_text()))
    known = gather(await resume(python_job("", roles={"worker": 1}), tmp_path))
    assert state(known) == ("succeeded", "Succeeded")
    assert facts(known)["took"].endswith(" in 2 starts")
    found = history_of(known)
    rows = {
        row.name: [str(bar.look) for bar in row.bars if bar.look in (Look.FAILED, Look.SUCCEEDED)] for row in found.rows
    }
    assert rows == {"worker-0": ["failed", "succeeded"]}
    ((stopped, resumed),) = found.pauses
    assert stopped < resumed
    ((at, words),) = found.restarts
    assert (at, words[:14]) == (resumed, "resumed after ")
    assert found.elapsed(found.end) < 86_400, "the pause of four years takes no room"
    settings = {each.name: each.words for each in known.settings}
    assert (settings["command"], settings["keras"]) == ("dtj run --resume job.yaml", "3.99")
    assert settings["dtj"] == __version__
    assert settings["CPUs"].isdecimal()


async def test_a_resumed_run_that_goes_on_does_not_show_the_end_of_the_start_before(tmp_path: Path) -> None:
    directory = await run(python_job("", roles={"worker": 1}), tmp_path)
    assert state(gather(directory)) == ("succeeded", "Succeeded")
    run_directory.prepare_again(directory)
    recorder = Recorder(directory.record, trainer=Trainer(Path(sys.executable)), command=("dtj", "run"))
    recorder.see(view_of("Training"))
    with directory.locked():
        known = gather(directory)
    assert state(known) == ("running", "Running")
    assert facts(known)["so far"].endswith(" in 2 starts")
    assert history_of(known).rows[-1].bars[-1].words == "training"


async def test_a_run_that_was_killed_does_not_run(tmp_path: Path) -> None:
    directory = await run(python_job("", roles={"worker": 1}), tmp_path)
    directory.objects.unlink()
    directory.record.unlink()
    recorder = Recorder(directory.record, trainer=Trainer(Path(sys.executable)), command=("dtj", "run"))
    recorder.see(view_of("Training"))
    later = (datetime.now(UTC) + timedelta(seconds=10)).timestamp()
    os.utime(directory.replica_log("worker-0"), (later, later))
    known = gather(directory)
    assert state(known) == ("stopped", "Stopped")
    assert history_of(known).rows[-1].bars[-1].end == datetime.fromtimestamp(later, UTC)


def view_of(phase: str) -> RunView:
    """One worker that does this."""
    replica = ReplicaView(replica=Replica(Role.WORKER, 0), state=phase, progress=Progress())
    return RunView(job="tiny", strategy="OneDevice", state="Running", elapsed=1.0, replicas=(replica,))


async def test_the_phases_of_a_replica_are_bars_and_its_end_is_a_mark(tmp_path: Path) -> None:
    known = gather(await run(python_job("", roles={"worker": 1}), tmp_path))
    job_start = parse_time(dig(known.job, "status", "startTime"))
    assert job_start is not None
    start = job_start - timedelta(milliseconds=1)  # the status has whole seconds, and is written after what was seen
    end = parse_time(dig(known.pods[0], "status", "containerStatuses", 0, "state", "terminated", "finishedAt"))
    assert end is not None
    middle = start + (end - start) / 2
    late = end + timedelta(seconds=1)
    changes = (("Training", start), ("Exporting", middle), ("Finishing", late), ("Succeeded", late))
    known = replace(known, phases=tuple(PhaseChange("worker-0", phase, moment) for phase, moment in changes))
    bars = history_of(known).rows[-1].bars
    assert [(str(bar.look), bar.words, bar.start, bar.end) for bar in bars] == [
        ("running", "training", start, middle),
        ("saving", "exporting", middle, end),
        ("succeeded", "succeeded", end, end),
    ]
    assert history(replace(known, job={**known.job, "status": {}})) is None, "it has not begun"


async def test_the_curves_of_a_run_are_what_its_leader_measured_in_all_starts(tmp_path: Path) -> None:
    code = (
        "import json, os; file = open(os.environ['DTJ_METRICS_FILE'], 'a'); index = int(os.environ['DTJ_INDEX'])\n"
        "for step in (1, 2): print(json.dumps({'step': step, 'metrics': {'loss': step + 10 * index}}), file=file)"
    )
    body = python_job(code, roles={"worker": 2})
    await run(body, tmp_path)
    known = gather(await resume(body, tmp_path))
    assert [(each.name, each.step, each.number) for each in known.scalars] == 2 * [("loss", 1, 1.0), ("loss", 2, 2.0)]
    assert known.unread == ()


def test_the_log_of_a_leader_tells_its_versions() -> None:
    versions = "versions: python 3.11.9, tensorflow 2.21.0"
    text = "".join(f"{at(n)} {line}\n" for n, line in enumerate(("digits: worker 0", versions, "versions: unknown")))
    as_json = f'{at(0)} {{"message": "{versions}"}}\n'
    for words in (text, as_json, f"{at(0)} versions: python 2\n{text}"):
        assert [(each.name, each.words) for each in versions_of([Log("worker-0", words, stamped=True)])] == [
            ("python", "3.11.9"),
            ("tensorflow", "2.21.0"),
        ]
    assert not versions_of([Log("worker-0", f"{at(0)} versions: unknown\n{at(1)}\n", stamped=True)])
