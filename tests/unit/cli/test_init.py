"""``dtj init``: what it writes is valid, and nothing of a person's is overwritten."""

from __future__ import annotations

import ast
import errno
from pathlib import Path

import pytest
import yaml

from dtj.api.names import job_name_from
from dtj.api.spec import Strategy
from dtj.cli.init import Style
from support.commands import Dtj

PAIRS = [
    (style, strategy)
    for style in Style
    for strategy in Strategy
    if style is Style.MODEL
    or strategy in (Strategy.ONE_DEVICE, Strategy.MULTI_WORKER_MIRRORED)
    or (style is Style.SESSION and strategy not in (Strategy.PARAMETER_SERVER, Strategy.PIPELINE))
]


def test_the_next_commands_are_reported(tmp_path: Path, dtj: Dtj, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert dtj("init", "my first", "--workers", "3").out == (
        "Wrote my first/job.yaml and my first/train.py. Next:\n\n"
        "  cd 'my first'\n"
        "  dtj run job.yaml                       train here, 3 workers\n"
        "  dtj explain job.yaml                   what a cluster would be asked for\n"
        "  dtj run --cluster --code . job.yaml    train on a cluster\n"
    )


@pytest.mark.parametrize(("style", "strategy"), PAIRS)
def test_every_pair_is_valid_and_can_be_submitted_with_its_code(
    tmp_path: Path, dtj: Dtj, style: Style, strategy: Strategy
) -> None:
    folder, file = tmp_path / "first", tmp_path / "first" / "job.yaml"
    assert dtj("init", folder, "--style", style, "--strategy", strategy).code == 0
    assert dtj("validate", file).err == ""
    assert yaml.safe_load(file.read_text())["spec"]["strategy"] == strategy
    ast.parse((folder / "train.py").read_text())
    config_map, job = yaml.safe_load_all(dtj("submit", "--code", folder, "-o", "yaml", file).out)
    volumes = job["spec"]["template"]["spec"]["volumes"]
    assert config_map["metadata"]["name"] in [volume.get("configMap", {}).get("name") for volume in volumes]


@pytest.mark.parametrize("name", ["yes", "on", "off", "no", "true", "null", "y", "n", "ok"])
def test_a_name_that_yaml_would_read_as_something_else_is_quoted(tmp_path: Path, dtj: Dtj, name: str) -> None:
    assert dtj("init", tmp_path / name).code == 0
    text = (tmp_path / name / "job.yaml").read_text()
    assert yaml.safe_load(text)["metadata"]["name"] == name
    assert f"\n  name: {name}\n" in text if name == "ok" else f'\n  name: "{name}"\n' in text
    assert dtj("validate", tmp_path / name / "job.yaml").code == 0


def test_the_directory_above_gives_its_name(tmp_path: Path, dtj: Dtj, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "digits" / "below"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert dtj("init", "..").code == 0
    assert yaml.safe_load(Path("../job.yaml").read_text())["metadata"]["name"] == "digits"


def test_without_a_directory_it_is_the_current_one(tmp_path: Path, dtj: Dtj, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "cd " not in dtj("init", "--name", "here").out
    assert yaml.safe_load(Path("job.yaml").read_text())["metadata"]["name"] == "here"


def test_parameter_servers_get_the_keras_that_they_need(tmp_path: Path, dtj: Dtj) -> None:
    assert dtj("init", tmp_path, "--strategy", "ParameterServer", "--name", "servers").code == 0
    assert "\nimport tf_keras as keras" in (tmp_path / "train.py").read_text()
    assert "\nimport keras\n" not in (tmp_path / "train.py").read_text()


def test_files_that_are_there_stay_unless_force_is_used(tmp_path: Path, dtj: Dtj) -> None:
    (tmp_path / "train.py").write_text("mine")
    assert dtj("init", tmp_path, "--name", "a").complaint == (
        f"{tmp_path}/train.py: already exists: use --force to overwrite it, or name another directory\n"
    )
    assert not (tmp_path / "job.yaml").exists()
    assert (tmp_path / "train.py").read_text() == "mine"
    assert dtj("init", tmp_path, "--name", "a", "--force").code == 0
    assert (tmp_path / "train.py").read_text() != "mine"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--name", "Big.Name"], '--name "Big.Name": the name becomes a host name'),
        (["--workers", "2", "--strategy", "OneDevice"], "spec.replicaSpecs: strategies OneDevice, Mirrored and"),
        (["--workers", "1", "--strategy", "Pipeline"], "spec.replicaSpecs: strategy Pipeline needs at least two"),
        (["--style", "script", "--strategy", "TPU"], "style script does not go with TPU, but with OneDevice, Multi"),
    ],
)
def test_what_cannot_work_is_one_line_and_nothing_is_written(
    tmp_path: Path, dtj: Dtj, options: list[str], words: str
) -> None:
    assert dtj("init", tmp_path / "new", *options).complaint.startswith(words)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["new", "overwritten"])
def test_on_a_full_disk_files_stay_as_they_are(
    tmp_path: Path, dtj: Dtj, monkeypatch: pytest.MonkeyPatch, force: tuple[str, ...]
) -> None:
    if force:
        (tmp_path / "train.py").write_text("mine")

    def write_part(path: Path, text: str, **_: object) -> None:
        path.write_bytes(text[:10].encode())
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    before = {path: path.read_text() for path in tmp_path.iterdir()}
    monkeypatch.setattr(Path, "write_text", write_part)
    assert dtj("init", tmp_path, "--name", "a", *force).complaint.endswith(
        "cannot be written: No space left on device\n"
    )
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, dtj: Dtj) -> None:
    (tmp_path / "file").write_text("")
    complaint = dtj("init", tmp_path / "file" / "below").complaint
    assert complaint == f"{tmp_path}/file/below: cannot be written: Not a directory\n"


@pytest.mark.parametrize(
    ("folder", "name"), [("My Project_1", "my-project-1"), ("2024", "job-2024"), ("", "job"), ("ab-", "ab")]
)
def test_a_job_is_named_after_its_folder(folder: str, name: str) -> None:
    assert job_name_from(folder) == name
