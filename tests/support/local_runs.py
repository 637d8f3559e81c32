"""Local runs: the command that starts one, small jobs, and an interpreter that passes for the trainer's."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self

import yaml

from builders import manifest
from dtj.api import names
from dtj.api.json import JsonObject
from dtj.api.spec import JobSpec
from dtj.local import run_directory
from dtj.local.ports import local_network
from dtj.local.runner import FinishedRun, LocalRun
from dtj.local.trainer import Trainer
from dtj.local.view import RunView

MARK = "TEST_MARK"
"""Variable by which a test finds the processes that it caused."""

PROC = Path("/proc")


class LocalCommand:
    """``dtj run`` in a folder of its own, with variables of its own; what runs at the end of its context is killed."""

    errors = subprocess.PIPE

    def __init__(self, folder: Path, trainer: str | Path, **environ: str) -> None:
        self.folder = folder
        self.mark = new_mark()
        self._environ = {"DTJ_TRAINER_PYTHON": str(trainer), MARK: self.mark, **environ}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: object, output: int = subprocess.PIPE, by: Sequence[str] = ()) -> subprocess.Popen[str]:
        """And let it go on."""
        started = subprocess.Popen(
            [*by, sys.executable, "-m", "dtj.cli.main", "run", *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, **self._environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=self.errors if output == subprocess.PIPE else output,
            text=True,
        )
        self._started.append(started)
        return started

    def latest(self, job: str = "tiny") -> Path:
        """The folder of the newest run of a job."""
        return self.folder / "dtj-runs" / job / "latest"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for started in self._started:
            started.kill()
            started.wait()


def python_job(
    code: str, *, name: str = "tiny", mark: str = "", grace_seconds: int = 1, **arguments: object
) -> JsonObject:
    """A manifest whose replicas run ``python -c code``; ``arguments`` are those of :func:`builders.manifest`."""
    container: JsonObject = {
        "name": names.MAIN_CONTAINER,
        "image": "example/tiny:1",
        "command": ["python", "-c", code],
        "env": [{"name": MARK, "value": mark}],
    }
    pod: JsonObject = {"containers": [container], "terminationGracePeriodSeconds": grace_seconds}
    arguments.setdefault("template", {"spec": pod})
    return manifest(name, **arguments)  # type: ignore[arg-type]


def write(folder: Path, *bodies: JsonObject, name: str = "job.yaml") -> Path:
    """A file with these documents."""
    file = folder / name
    file.write_text(yaml.safe_dump_all(bodies))
    return file


def new_mark() -> str:
    return uuid.uuid4().hex


def marked_processes(mark: str) -> list[int]:
    """The processes that carry the mark and have not ended."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has just ended, or is another user's
        if wanted in environment:
            found.append(int(entry.name))
    return found


def fake_trainer(folder: Path) -> Path:
    """A Python without TensorFlow that says, when probed, that it has all a trainer needs."""
    script = folder / "trainer" / "bin" / "python"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/sh\n[ "$1" = -E ] && exec echo tensorflow dtj_trainer python=3.11.0\nexec {sys.executable} "$@"\n'
    )
    script.chmod(0o755)
    return script


async def run_locally(
    body: JsonObject, runs: Path, *, show: Callable[[RunView, LocalRun], None] = lambda view, running: None
) -> FinishedRun:
    """Run a job with this interpreter. ``show`` sees each view and may stop the run."""
    name = body["metadata"]["name"]  # type: ignore[index, call-overload]
    directory = run_directory.create(runs, job=str(name), now=datetime.now())
    with local_network(JobSpec.model_validate(body["spec"])) as network:
        running = LocalRun(
            body, directory=directory, network=network, trainer=Trainer(Path(sys.executable)), environ=os.environ
        )
        return await running.run(lambda view: show(view, running))
