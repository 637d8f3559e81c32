"""``dtj submit`` without a cluster: what it prints for kubectl, what it refuses, and which files a command names."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml

from builders import manifest
from dtj.api.json import JsonObject, object_at
from dtj.cli.common.submission import files_named
from support.commands import Dtj
from support.kubeconfigs import kubeconfig
from support.local_runs import write


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("pass")
    return folder


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever asked for a cluster would fail."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_what_would_be_created_is_printed_each_config_map_before_its_job(
    dtj: Dtj, tmp_path: Path, code: Path, form: str
) -> None:
    done = dtj("submit", "--code", code, "-o", form, write(tmp_path, manifest("a"), manifest("b")))
    found = list(yaml.safe_load_all(done.out)) if form == "yaml" else json.loads(done.out)["items"]
    assert [each["kind"] for each in found] == ["ConfigMap", "DistributedTrainingJob"] * 2
    assert [each["metadata"].get("namespace") for each in found] == [None] * 4
    assert found[0]["metadata"]["name"] != found[2]["metadata"]["name"], "each job has its own"
    assert done.err == f"Code of {code}: 1 file, 4 bytes, packed {len_packed(found[0])} bytes\n"


def test_files_that_are_not_sent_because_they_usually_hold_secrets_are_named(
    dtj: Dtj, tmp_path: Path, code: Path
) -> None:
    (code / ".env").write_text("TOKEN=x")
    done = dtj("submit", "--code", code, "-o", "json", write(tmp_path, manifest("a")))
    _, line = done.err.splitlines()
    assert line.startswith(f"Code of {code}: left out, because such files usually hold secrets: .env; ")


def len_packed(config_map: JsonObject) -> int:
    """The bytes of the archive in a ConfigMap."""
    data = object_at(config_map, "binaryData")
    return len(base64.b64decode(str(data["code.tar.gz"])))


def test_without_code_the_jobs_alone_are_printed(dtj: Dtj, tmp_path: Path) -> None:
    assert yaml.safe_load(dtj("submit", "-o", "yaml", write(tmp_path, manifest("a"))).out) == manifest("a")


def test_the_namespace_that_was_asked_for_is_printed(dtj: Dtj, tmp_path: Path, code: Path) -> None:
    done = dtj("submit", "--code", code, "-o", "yaml", "-n", "theirs", write(tmp_path, manifest("a")))
    found = yaml.safe_load_all(done.out)
    assert [each["metadata"]["namespace"] for each in found] == ["theirs", "theirs"]


@pytest.mark.parametrize("options", [["-o", "yaml"], []])
def test_a_directory_that_is_not_there_is_one_line_whether_printed_or_submitted(
    dtj: Dtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "https://127.0.0.1:1", token="t")))
    done = dtj("submit", "--code", tmp_path / "none", *options, write(tmp_path, manifest("a")))
    assert done.complaint == f"--code: {tmp_path}/none: directory not found\n"


def test_a_contradicting_namespace_is_refused(dtj: Dtj, tmp_path: Path) -> None:
    there: JsonObject = {**manifest("a"), "metadata": {"name": "a", "namespace": "there"}}
    file = write(tmp_path, there)
    assert dtj("submit", "-o", "yaml", "-n", "here", file).complaint == (
        f'{file}: a: metadata.namespace: is "there", but the namespace asked for is "here"; leave one of them out\n'
    )


def test_a_command_that_names_files_of_the_directory_is_noted_without_code(
    dtj: Dtj, tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "a:1", "args": ["--script=train.py"]}]}}
    file = write(tmp_path, manifest("a", template=template))
    monkeypatch.chdir(code)
    assert dtj("submit", "-o", "yaml", file).err == (
        f"{file}: a: the command names train.py of this directory: add --code . to send the directory along, "
        "unless the image has it\n"
    )
    assert "the command names" not in dtj("submit", "--code", ".", "-o", "yaml", file).err


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
