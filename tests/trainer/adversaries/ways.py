"""Runs a sample, by plain Keras on one device and as the trainer gets it, in forks that leave their numbers."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dtj_launch.errors import NO_RESTART_HELPS
from trainer import fork_server
from trainer.adversaries.sample import CENTRAL, MIRRORED, MODEL, SCRIPT, Sample
from trainer.cluster import PATH, Job, Replica, inherited

PROGRAM = "trainer.adversaries.task"
SECONDS = 180.0
"""In which a run ends, unless it hangs."""
_TESTS = Path(__file__).resolve().parents[2]
QUIET = {
    "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1",
    "PYTHONPATH": f"{PATH}:{_TESTS}",
}  # fmt: skip
STOPPED_AT = 2
"""The step after which a run is stopped, and goes on from its checkpoint: less than any sample has."""


@dataclass(frozen=True)
class Ended:
    """What came of a run.

    Attributes:
        code: of the task that ended worst; None where one did not end.
        words: the last ones of that task.
        numbers: by worker: the weights, by their place, and what else it told, by its name.
    """

    code: int | None
    words: str
    numbers: list[Mapping[str, Any]] = field(default_factory=list)


def forking(program: str = PROGRAM) -> AbstractContextManager[None]:
    """Meanwhile, runs are forked from one process that has imported TensorFlow."""
    return fork_server.forking({**inherited(), **QUIET}, program)


def plainly(sample: Sample, folder: Path, *, nudged: bool = False) -> Ended:
    """By plain Keras on one device; nudged, from weights that differ in their last digits."""
    folder.mkdir()
    (folder / "sample.py").write_text(sample.source)
    environ = (
        QUIET | {"TEST_KIND": "plain", "TEST_OUT": str(folder / "out0.npz")} | ({"TEST_NUDGE": "1"} if nudged else {})
    )
    replica = Replica(
        "plain",
        arguments=["--script=sample.py"],
        environ=environ,
        folder=folder,
        program=("-m", PROGRAM),
        imported=True,
    )
    try:
        code = replica.wait(SECONDS)
    except subprocess.TimeoutExpired:
        replica.kill()
        return Ended(None, "plain Keras did not end")
    return Ended(code, _last_line(replica.log), _numbers(folder))


def by_trainer(sample: Sample, folder: Path) -> Ended:
    """As the trainer gets it."""
    by = sample.arguments
    if sample.resumed:
        by += ["--checkpoint-every-steps=1", *(["--steps-per-call=1"] if sample.way == MODEL else [])]
    if sample.strategy in (MIRRORED, CENTRAL) and sample.way != SCRIPT:
        by.append(f"--logical-cpus={sample.replicas}")
    with Job(
        folder, strategy=sample.strategy, arguments=by, files={"sample.py": sample.source}, program=("-m", PROGRAM),
        imported=True, exports=False,
    ) as job:  # fmt: skip
        try:
            if sample.resumed:
                job.hold_at(STOPPED_AT)
                _start(job, sample.test_kind).wait_for_checkpoint(STOPPED_AT, SECONDS)
                job[job.leader].kill(signal.SIGTERM)
                job.let_go()
                job.wait(SECONDS)
            _start(job, sample.test_kind)
            codes = {one.name: one.wait(SECONDS) for one in job.ending}
        except AssertionError:  # it ended before the checkpoint
            codes = job.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return Ended(None, " | ".join(_last_line(one.log) for one in job.replicas.values()))
        worst = min(codes, key=lambda name: (codes[name] == 0, codes[name] == 75))
        words = job.folder / f"{worst}.termination"
        said = words.read_text().strip() if words.exists() and codes[worst] else _last_line(job[worst].log)
        said = said.removeprefix(NO_RESTART_HELPS).strip()
        numbers = _numbers(folder)
        result = folder / "logs" / "result.json"
        if sample.way == MODEL and numbers and result.exists():
            numbers = [{**numbers[0], **json.loads(result.read_text())}]
        return Ended(codes[worst], said, numbers)


def _start(job: Job, kind: str) -> Job:
    for role, index in job.tasks:
        out = str(job.folder / f"out{index}.npz")
        job.start(f"{role}-{index}", environ=QUIET | {"TEST_KIND": kind, "TEST_OUT": out})
    return job


def _numbers(folder: Path) -> list[Mapping[str, Any]]:
    found = []
    for path in sorted(folder.glob("out*.npz")):
        with np.load(path) as saved:
            found.append(dict(saved))
    return found


def _last_line(log: str) -> str:
    return next((line for line in reversed(log.splitlines()) if line.strip()), "")
