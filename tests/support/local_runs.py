"""Small local runs: jobs whose replicas run a line of Python, and an interpreter that passes for the trainer's."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

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


def python_job(code: str, *, name: str = "tiny", mark: str = "", **arguments: object) -> JsonObject:
    """A manifest whose replicas run ``python -c code``; ``arguments`` are those of :func:`builders.manifest`."""
    container: JsonObject = {
        "name": names.MAIN_CONTAINER,
        "image": "example/tiny:1",
        "command": ["python", "-c", code],
        "env": [{"name": MARK, "value": mark}],
    }
    arguments.setdefault("template", {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}})
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
