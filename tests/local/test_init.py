"""``dtj init`` and ``dtj run`` after it, with real TensorFlow: each pair of files trains as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.local_runs import MARK, marked_processes, new_mark
from trainer_environment import trainer_python


def dtj(folder: Path, *arguments: str, mark: str = "") -> str:
    """The output of a command that succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", "dtj.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("options", "replicas"),
    [
        (("--style=model",), ["worker-0", "worker-1"]),
        (("--style=session",), ["worker-0", "worker-1"]),
        (("--style=script",), ["worker-0", "worker-1"]),
        (("--strategy=ParameterServer",), ["chief-0", "ps-0", "worker-0", "worker-1"]),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_init_writes_trains(tmp_path: Path, options: tuple[str, ...], replicas: list[str]) -> None:
    mark = new_mark()
    dtj(tmp_path, "init", "first", *options)
    folder = tmp_path / "first"
    output = dtj(folder, "run", "job.yaml", "--trainer-python", str(trainer_python()), mark=mark)
    run = folder / "dtj-runs" / "first" / "latest"
    assert sorted(log.stem for log in (run / "logs").glob("*-*.log")) == replicas
    assert re.search(r"^first succeeded after ", output, re.MULTILINE), output
    printed = output + "".join(log.read_text() for log in (run / "logs").glob("*.log"))
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+(?:e-\d+)?)", printed)]
    assert losses
    assert min(losses) < 0.2, "it has learned"
    assert marked_processes(mark) == []
