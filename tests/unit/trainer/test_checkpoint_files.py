"""The files of checkpoints in a directory, which others use as well."""

from pathlib import Path

import pytest

from dtj_trainer.checkpoint import files
from dtj_trainer.errors import Unreadable

FOREIGN = (
    "ckpt-best.index", "ckpt-final.keras", "ckpt-5.h5", "ckpt-5.index.bak", "ckpt-5.complete", "ckpt-007.index",
    "ckpt-5.data-mine", "ckpt-5.data-00000-of-00001.tempstate123", "ckpt-\u0663.index",
)  # fmt: skip


def a_directory_of(directory: Path, *steps: int) -> Path:
    for step in steps:
        (directory / f"ckpt-{step}.index").touch()
        (directory / f"ckpt-{step}.data-00000-of-00001").touch()
    return directory


def test_files_with_other_names_than_those_of_checkpoints_stay(tmp_path: Path) -> None:
    directory = a_directory_of(tmp_path, 5, 10)
    for name in FOREIGN:
        (directory / name).touch()
    (directory / "ckpt-4.index").mkdir()
    assert files.find(directory) == [10, 5]
    files.keep_newest(directory)
    assert files.find(directory) == [10]
    files.remove(directory, 10)
    assert {path.name for path in directory.iterdir()} == {*FOREIGN, "ckpt-4.index"}


def test_what_a_killed_process_left_of_a_checkpoint_is_removed_with_the_older_ones(tmp_path: Path) -> None:
    directory = a_directory_of(tmp_path, 5, 10)
    (directory / "ckpt-20.data-00000-of-00001").touch()
    files.keep_newest(directory)
    assert {path.name for path in directory.iterdir()} == {"ckpt-10.index", "ckpt-10.data-00000-of-00001"}


def test_a_directory_that_is_not_there_has_no_checkpoints(tmp_path: Path) -> None:
    assert files.find(tmp_path / "none") == []


def test_a_directory_that_cannot_be_listed_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unreadable, match=r"checkpoint directory .*/file: cannot be read \(Not a directory\); check"):
        files.find(tmp_path / "file")
