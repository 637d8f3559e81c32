"""What a job that ran here needs on a cluster: its files, and objects that have to be there."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtj.api.json import JsonObject
from dtj.cli.common.submission import cluster_needs


def pod(*args: str, volumes: list[JsonObject] | None = None, **container: object) -> JsonObject:
    main: JsonObject = {"name": "trainer", "args": list(args), **container}  # type: ignore[dict-item]
    return {"spec": {"containers": [main], "volumes": list(volumes or [])}}


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
    assert cluster_needs([pod(*words)], tmp_path).files == files
    assert cluster_needs([pod(command=words)], tmp_path).files == files


def test_a_volume_at_the_working_directory_holds_the_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    mounted = pod("train.py", workingDir="/code", volumeMounts=[{"name": "code", "mountPath": "/code/"}])
    assert cluster_needs([mounted], tmp_path).files == ()


def test_objects_that_have_to_be_there_are_named_once(tmp_path: Path) -> None:
    volumes: list[JsonObject] = [
        {"name": "a", "configMap": {"name": "settings"}},
        {"name": "b", "secret": {"secretName": "token"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "d", "configMap": {"name": "perhaps", "optional": True}},
        {"name": "e", "emptyDir": {}},
        {"name": "dtj-checkpoint", "persistentVolumeClaim": {"claimName": "digits-checkpoint"}},
    ]
    needs = cluster_needs([pod(volumes=volumes), pod(volumes=volumes)], tmp_path)
    assert needs.objects == ("ConfigMap settings", "Secret token", "PersistentVolumeClaim data")
