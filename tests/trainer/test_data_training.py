"""Real jobs on users' files."""

import re
from pathlib import Path

import pytest

from trainer.cluster import ran
from trainer.data_files import write

SHORT = ("--epochs=5", "--batch-size=16", "--held-out=0.2", "--checkpoint-every-steps=5", "--checkpoint-keep=9")


def test_two_workers_learn_of_pictures_what_one_process_learns(tmp_path: Path) -> None:
    arguments = [*SHORT, f"--data-dir={write(tmp_path / 'data', 'images')}", "--cache=none"]
    one = ran(tmp_path / "one", arguments=arguments, exports=False)
    two = ran(tmp_path / "two", strategy="MultiWorkerMirrored", arguments=arguments, exports=False)
    assert two.result["loss"] == pytest.approx(one.result["loss"], abs=1e-5)
    assert two.result["steps"] == one.result["steps"] == 15
    printed = two["worker-0"].log
    assert re.search(
        r"^data: \S+/data: images, 60 files, 48 examples to learn from, 12 held out, 2 classes: even, odd$",
        printed,
        re.M,
    )
    assert "data:" not in two["worker-1"].log


def test_a_picture_that_is_damaged_ends_the_job_in_one_line_that_names_it(tmp_path: Path) -> None:
    write(tmp_path / "data", "images")
    (tmp_path / "data" / "odd" / "031.png").write_bytes(b"\x89PNG and no more")
    arguments = [*SHORT, f"--data-dir={tmp_path / 'data'}", "--cache=none"]
    worker = ran(tmp_path / "job", code=2, arguments=arguments, exports=False)["worker-0"]
    assert worker.last_words.startswith(f"{tmp_path}/data/odd/031.png: cannot be decoded (")
    assert worker.last_words.endswith("); replace or remove it")
    assert not worker.restart_may_help
    assert "Traceback" not in worker.log
