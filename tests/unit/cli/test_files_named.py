"""The files of a directory that the command of a job names."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtj.api.json import JsonObject
from dtj.cli.common.submission import files_named


def pod(*args: str, **container: object) -> JsonObject:
    return {"spec": {"containers": [{"name": "trainer", "args": list(args), **container}]}}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ([], ()),
        (["--task=image-classification", "--dataset=digits"], ()),
        (["--script=train.py"], ("train.py",)),
        (["--script", "train.py", "--", "--epochs=5"], ("train.py",)),
        (["--script=/code/train.py"], ()),
        (["--script=other.py"], ()),
        (["--script=package.deep"], ("package/deep.py",)),
        (["--script", "package.deep"], ("package/deep.py",)),
        (["-m", "package.deep"], ("package/deep.py",)),
        (["-m", "package"], ("package/__init__.py",)),
        (["-m", "dtj_trainer"], ()),
        (["--model=train:build", "--data=train:data"], ("train.py",)),
        (["--model=package.deep:build"], ("package/deep.py",)),
        (["--model=elsewhere:build"], ()),
        (["train.py"], ("train.py",)),
        (["--csv=data.csv"], ("data.csv",)),
        (["train"], ()),
        (["--csv=package"], ()),
        (["-c", "print('train.py')" * 1000], ()),
        (["\0"], ()),
    ],
)
def test_a_command_that_names_files_of_the_directory_needs_them(
    tmp_path: Path, words: list[str], files: tuple[str, ...]
) -> None:
    for file in ("train.py", "data.csv", "package/__init__.py", "package/deep.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert files_named([pod(*words)], tmp_path) == files
    assert files_named([pod(command=words)], tmp_path) == files


def test_a_volume_at_the_working_directory_holds_the_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    mounted = pod("train.py", workingDir="/code", volumeMounts=[{"name": "code", "mountPath": "/code/"}])
    assert files_named([mounted], tmp_path) == ()
