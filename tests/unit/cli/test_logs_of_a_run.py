"""``dtj logs --run``: the logs of a run on this machine, as those of a job on a cluster are shown."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
import yaml

from dtj.api.job import parse_time
from dtj.api.json import JsonObject
from dtj.cli.logs import local_run
from dtj.cli.logs.local_run import followed
from dtj.client.logs import LogLine, LogSelection
from dtj.kube.pod_logs import MAX_LOG_LINE_BYTES
from dtj.local import run_directory
from dtj.local.replica_logs import ReplicaLog, read_times, replica_logs, times_file
from dtj.local.run_directory import RunDirectory
from support.commands import Done, Dtj
from support.job_evidence import a_job_that_failed, moment
from support.local_runs import python_job, run_locally


def a_run(folder: Path, *, job: JsonObject | None = None) -> RunDirectory:
    """A run of two workers that have written two lines each, with the times of all but the last."""
    directory = run_directory.create(folder / "dtj-runs", job="digits", now=moment(0))
    job = job or a_job_that_failed().job
    directory.manifest.write_text(yaml.safe_dump(job))
    directory.objects.write_text(json.dumps({"items": [{**job, "kind": "DistributedTrainingJob"}]}))
    for index in (0, 1):
        log = directory.replica_log(f"worker-{index}")
        log.write_text(f"one of {index}\ntwo of {index}\n")
        stamps = [(moment(10 * line + index), 9 * (line + 1)) for line in (0, 1)]
        times_file(log).write_text("".join(f"{size} {at:%Y-%m-%dT%H:%M:%SZ}\n" for at, size in stamps))
    directory.runner_log.write_text("what the controller did\n")
    return directory


def test_lines_are_merged_by_time_and_carry_the_name_of_their_replica(dtj: Dtj, tmp_path: Path) -> None:
    assert dtj("logs", "--run", a_run(tmp_path).path).out.splitlines() == [
        "worker-0 | one of 0",
        "worker-1 | one of 1",
        "worker-0 | two of 0",
        "worker-1 | two of 1",
    ]


def test_the_options_mean_what_they_mean_for_a_cluster(dtj: Dtj, tmp_path: Path) -> None:
    one = ("logs", "--run", a_run(tmp_path).path, "--role", "worker", "--index", "1")
    assert dtj(*one, "--tail", "1").out == "two of 1\n"
    assert dtj(*one, "--timestamps", "--tail", "1").out == f"{moment(11):%Y-%m-%dT%H:%M:%SZ} two of 1\n"
    recent = (datetime.now(UTC) - moment(11) + timedelta(seconds=-3600)).total_seconds()
    assert dtj(*one, "--since", f"{int(recent)}s") == Done(0, "", "")


def test_a_run_that_is_followed_shows_new_lines_and_new_replicas_and_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_run, "POLL_SECONDS", 0.001)
    directory = a_run(tmp_path)

    async def follow() -> list[str]:
        found = []
        lines = followed(directory, replica_logs(directory), LogSelection())
        with directory.locked():
            async for line in lines:
                found.append(line.line.text if isinstance(line, LogLine) else line.words)
                if found[-1] == "two of 1":
                    with directory.replica_log("worker-0").open("a") as log:
                        log.write("three\nand a line without an e")
                if found[-1] == "three":
                    directory.replica_log("evaluator-0").write_text("watching\n")
                if found[-1] == "watching":
                    break
        return found + [line.line.text if isinstance(line, LogLine) else line.words async for line in lines]

    assert asyncio.run(follow()) == [
        "one of 0",
        "one of 1",
        "two of 0",
        "two of 1",
        "three",
        "evaluator-0 has started",
        "watching",
        "and a line without an e",
        "digits has failed: worker 1 failed with exit code 1; backoffLimit 0 is used up",
    ]


def test_the_first_error_is_searched_in_the_log_of_the_replica_that_failed_first(dtj: Dtj, tmp_path: Path) -> None:
    directory = a_run(tmp_path)
    log = directory.replica_log("worker-1")
    log.write_text(log.read_text() + "ValueError: bad record\nafter\n")
    printed = dtj("logs", "--run", directory.path, "--first-error").out.splitlines()
    assert printed[0].startswith("worker-1 exited with code 1")
    assert printed[1:5] == ["  one of 1", "  two of 1", "> ValueError: bad record", "  after"]
    assert printed[-1] == f"all of it: dtj logs --run {directory.path} --role worker --index 1"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--role", "ps"), '--role: digits has no role "ps": it has worker'),
        (("--index", "7"), "--index: digits has no replica 7: the last one is 1"),
    ],
    ids=["role", "index"],
)
def test_a_replica_that_the_job_does_not_have_is_one_line_and_exit_code_2(
    dtj: Dtj, tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    assert dtj("logs", "--run", a_run(tmp_path).path, *words).complaint == f"{expected}\n"


def test_a_run_that_has_written_nothing_says_so(dtj: Dtj, tmp_path: Path) -> None:
    directory = a_run(tmp_path)
    for file in directory.replica_logs():
        file.unlink()
    words = "digits: no such replica has written anything yet\n"
    assert dtj("logs", "--run", directory.path) == Done(0, "", words)


def test_a_line_without_an_end_keeps_its_first_64_kib(tmp_path: Path) -> None:
    file = tmp_path / "worker-0.log"
    file.write_bytes(b"x" * (3 * MAX_LOG_LINE_BYTES) + b"\nshort\nlast")
    lines = [line.text for line in ReplicaLog("worker", 0, file).read()]
    assert [len(line) for line in lines] == [MAX_LOG_LINE_BYTES, 5, 4]


async def test_the_runner_notes_when_lines_were_written(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    await run_locally(python_job("print('up')", roles={"worker": 1}), tmp_path)
    (log,) = replica_logs(run_directory.find("tiny", tmp_path))
    at = parse_time(read_times(log.file).at(3))
    assert at is not None
    assert before <= at <= datetime.now(UTC)


def test_a_command_without_a_name_names_a_run_that_is_here(
    dtj: Dtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match=r"or a run on this machine with --run, such as --run digits$"):
        dtj("logs")
