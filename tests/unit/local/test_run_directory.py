"""The folder of a run on this machine: its owner's alone, since manifests and logs hold secrets."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dtj.local import run_directory
from dtj.local.objects import Objects
from dtj.local.process import Process
from dtj.local.run_directory import RunError, append_privately, write_privately
from dtj.local.runner import keep_objects

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def generous_umask() -> Iterator[None]:
    """One that takes no right from anybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_no_other_user_can_open_what_is_in_the_folder_of_a_run(tmp_path: Path) -> None:
    assert mode(run_directory.create(tmp_path, job="digits", now=NOW).path) == 0o700


async def test_manifest_objects_and_logs_stay_private_wherever_they_are_copied(tmp_path: Path) -> None:
    directory = run_directory.create(tmp_path, job="digits", now=NOW)
    directory.manifest.write_text("of an older version")
    write_privately(directory.manifest, b"a: 1\n")
    keep_objects(Objects(), directory.objects)
    append_privately(directory.runner_log).close()
    process = await Process.start(["true"], environment={}, log=directory.replica_log("worker-0"))
    await process.wait()
    files = [directory.manifest, directory.objects, directory.runner_log, directory.replica_log("worker-0")]
    assert [mode(file) for file in files] == [0o600] * 4
    assert directory.manifest.read_text() == "a: 1\n"


def test_a_run_that_a_process_runs_is_not_taken_up_again_before_its_end(tmp_path: Path) -> None:
    directory = run_directory.create(tmp_path, job="digits", now=NOW)
    assert not directory.running
    with directory.locked():
        assert directory.running
        again = run_directory.latest(tmp_path, job="digits")
        assert again is not None
        with pytest.raises(RunError, match=r"is still running: wait for its end"), again.locked():
            pass
    assert not directory.running
    with again.locked():
        assert directory.running
