"""What is shown of the warnings in the logs of a run on this machine."""

from __future__ import annotations

from pathlib import Path

from dtj.local.log_warnings import warnings_of


def log(folder: Path, index: int, *lines: str) -> Path:
    file = folder / f"worker-{index}.log"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_a_warning_of_several_replicas_is_shown_once(tmp_path: Path) -> None:
    first = log(tmp_path, 0, "step 1/2", "warning: train.py trains alone")
    second = log(tmp_path, 1, "warning: train.py trains alone", "WARNING:tensorflow: retracing", "warning: \x1b[2Jslow")
    assert warnings_of([first, second]) == ("train.py trains alone", "slow")


def test_of_many_warnings_the_first_are_shown_with_the_number_of_the_others(tmp_path: Path) -> None:
    many = log(tmp_path, 0, *(f"warning: step {number}" for number in range(5)))
    assert warnings_of([many]) == ("step 0", "step 1", "step 2", "2 more in the logs")


def test_a_log_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert warnings_of([tmp_path / "none.log"]) == ()
