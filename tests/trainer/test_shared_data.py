"""Data that two workers give Keras' `fit`, `evaluate` and `predict`: the examples of one device, or one line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from trainer.cluster import DEADLINE, Job, inherited
from trainer.outcome import largest_difference

SCRIPT = Path(__file__).parent / "scripts" / "shares.py"
ALONE, TWO = "one device", "two workers"
TOLERANCE = 1e-5
QUIET = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
EQUAL = (
    "files, take and skip", "files, predicted", "files, some steps", "files, DATA", "one file", "the same generator",
    "shuffled by Keras", "own shard, OFF",
)  # fmt: skip
"""As one device with the same global batches."""
COUNTED = {
    "files": 240, "own rows of another number, OFF": 240, "a service, shared": 240, "the same rows, OFF": 480,
    "shuffled by Keras, without a seed": 240, "changed at random": 240,
}  # fmt: skip
"""Examples that an epoch counts; which of them are in a batch, the workers decide."""
_PLACE = r"UsageError: shares\.py:\d+: "
_DIFFERENT = _PLACE + r"the 2 workers have different data \(seen in {}\); give all of the data on each worker, "
_READ = _PLACE + "the 2 workers have read different examples in their first batch; give all of the data on each worker"
REFUSED = {
    "own shard": _DIFFERENT.format("shard"),
    "own rows": _DIFFERENT.format("tensor"), "own rows in held-out examples": _DIFFERENT.format("tensor"),
    "own rows, predicted": _DIFFERENT.format("tensor"),
    "own files": _DIFFERENT.format("tensor_slice"),
    "drawn by each worker": _DIFFERENT.format("tensor"),
    "own generator": _READ, "own PyDataset": _READ,
    "a service": _PLACE + r"a service of tf\.data gives .* give distribute\(\) a job_name",
    "own text files": _DIFFERENT.format("tensor_slice"),
    "files in any order": _PLACE + r"deterministic=False of parallel_interleave: each .* \(of tensorflow_datasets: ",
    "files in any order, within a function": _PLACE + "deterministic=False of parallel_map: each worker reads",
    "files in any order, DATA": _PLACE + "deterministic=False of parallel_map: each worker reads",
    "rows that end on one worker, OFF": _PLACE + "the data of one worker end, and those of another do not;",
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all cells have left what came of them, with the log of two workers."""
    folder = tmp_path_factory.mktemp("shares")
    for file in range(4):
        with tf.io.TFRecordWriter(str(folder / f"{file}.tfrecord")) as writer:
            for value in np.linspace(-1, 1, 240, dtype="float32")[60 * file :][:60]:
                writer.write(value.tobytes())
        (folder / f"{file}.txt").write_text("".join(f"{step}\n" for step in range(60 * file, 60 * file + 60)))
    program = [sys.executable, str(SCRIPT), str(folder), ALONE, *EQUAL]
    subprocess.run(program, env={**inherited(), **QUIET}, cwd=folder, check=True, timeout=DEADLINE)
    arguments = [f"--script={SCRIPT}", "--", str(folder), TWO, *EQUAL, *COUNTED, *REFUSED]
    with Job(folder / "job", strategy="MultiWorkerMirrored", arguments=arguments, imported=True) as job:
        codes = job.start(environ=QUIET).wait(4 * DEADLINE)
        (folder / "log").write_text(job["worker-0"].log)
        print(job["worker-0"].log)
        assert set(codes.values()) == {0}
    return folder


def found(results: Path, cell: str) -> list[dict[str, object]]:
    """What it gave on each worker."""
    return [json.loads((results / f"{TWO} {index}" / f"{cell}.json").read_text()) for index in range(2)]


@pytest.mark.parametrize("cell", EQUAL)
def test_what_two_workers_are_given_is_trained_as_on_one_device(results: Path, cell: str) -> None:
    plain = json.loads((results / f"{ALONE} 0" / f"{cell}.json").read_text())
    for one in found(results, cell):
        assert "line" not in plain, plain["line"]
        assert "line" not in one, one["line"]
        difference, where = largest_difference(plain, one)
        assert difference <= TOLERANCE, where


@pytest.mark.parametrize("cell", COUNTED)
def test_an_epoch_has_the_examples_of_all_workers(results: Path, cell: str) -> None:
    for one in found(results, cell):
        assert "line" not in one, one["line"]
        shown, _ = one["measured"]  # type: ignore[misc]
        assert shown[1] == COUNTED[cell]  # type: ignore[has-type]


@pytest.mark.parametrize("cell", REFUSED)
def test_data_that_the_workers_cannot_share_are_one_line(results: Path, cell: str) -> None:
    for one in found(results, cell):
        line = str(one.get("line", one))
        assert re.match(REFUSED[cell], line), line
        assert "\n" not in line


def test_what_a_policy_changes_is_told_once(results: Path) -> None:
    log = (results / "log").read_text()
    assert "the data are divided by batches and not by files, because of take: each worker reads all files" in log
    assert "AutoShardPolicy.OFF of the data, and the 2 workers have the same: each example counts 2 times;" in log
