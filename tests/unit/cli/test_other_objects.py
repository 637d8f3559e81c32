"""A file may hold more than jobs: a Namespace, a ConfigMap, a claim, a TFJob, a list."""

from __future__ import annotations

from pathlib import Path

import pytest

from bad_tfjobs import role, tfjob
from builders import manifest
from dtj.api.json import JsonObject
from dtj.cli.main import cli
from support.local_runs import write

CONFIG_MAP: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}}
TFJOB: JsonObject = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "old"}}


def run(*arguments: object) -> object:
    return cli.main([str(argument) for argument in arguments], standalone_mode=False)


def note(title: str, kind: str = "ConfigMap") -> str:
    return f"{title}: {kind}: left alone, because it is not a DistributedTrainingJob; kubectl apply creates it\n"


@pytest.mark.parametrize("command", ["validate", "explain"])
def test_objects_of_other_kinds_are_left_alone_with_a_note(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim: JsonObject = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    file = write(tmp_path, CONFIG_MAP, manifest("digits"), claim)
    assert run(command, file) == 0
    output = capsys.readouterr()
    assert output.err == note(f"{file}: document 1 (code)") + note(f"{file}: document 3", "PersistentVolumeClaim")
    assert "digits" in output.out


@pytest.mark.parametrize("command", ["validate", "explain", "run"])
def test_files_without_any_job_are_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, CONFIG_MAP)
    assert run(command, file) == 2
    assert capsys.readouterr().err == note(f"{file}: code") + "there is no DistributedTrainingJob here\n"


def test_a_file_without_a_job_next_to_one_with_a_job_is_left_alone(tmp_path: Path) -> None:
    other = write(tmp_path, CONFIG_MAP, name="other.yaml")
    assert run("validate", other, write(tmp_path, manifest("digits"))) == 0


def test_a_tfjob_is_checked_as_the_operator_runs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("validate", write(tmp_path, tfjob())) == 0
    bad = write(tmp_path, tfjob(Trainer=role()), name="bad.yaml")
    assert run("validate", bad) == 2
    assert "spec.tfReplicaSpecs.Trainer: is not a role of a TFJob" in capsys.readouterr().err


def test_an_old_tfjob_is_to_be_converted(tmp_path: Path) -> None:
    assert run("validate", write(tmp_path, {**tfjob(), "apiVersion": "kubeflow.org/v1beta2"})) == 2


@pytest.mark.parametrize("command", ["explain", "run"])
def test_a_tfjob_is_recognised_with_the_command_that_converts_it(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, TFJOB)
    assert run(command, file) == 2
    assert capsys.readouterr().err == (
        f"{file}: old: this is a TFJob of Kubeflow: convert it with: dtj convert {file} > job.yaml\n"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"apiVersion": None}, 'apiVersion: Required value: write "training.dtj.dev/v1alpha1"'),
        ({"apiVersion": "v1"}, 'apiVersion: must be "training.dtj.dev/v1alpha1", not "v1"'),
        ({"kind": None}, 'kind: Required value: write "DistributedTrainingJob"'),
        ({"kind": "DistributedTrainingjob"}, 'kind: must be "DistributedTrainingJob", not "DistributedTrainingjob"'),
        ({"apiVersion": "training.dtj.dev/v2"}, 'apiVersion: must be "training.dtj.dev/v1alpha1", not'),
    ],
)
def test_a_job_whose_kind_or_version_is_wrong_is_not_left_alone(
    fields: dict[str, str | None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body: JsonObject = {**manifest(), **fields}
    body = {key: value for key, value in body.items() if value is not None}
    assert run("validate", write(tmp_path, body)) == 2
    assert message in capsys.readouterr().err


def test_the_items_of_a_list_are_checked_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = [CONFIG_MAP, manifest("a"), manifest("b", port=0)]
    file = write(tmp_path, {"apiVersion": "v1", "kind": "List", "items": items})  # type: ignore[dict-item]
    assert run("validate", file) == 2
    output = capsys.readouterr()
    assert output.out == f"{file}: a: valid\n"
    assert output.err.startswith(note(f"{file}: items[0] (code)") + f"{file}: items[2] (b): spec.port: ")


def test_an_empty_list_has_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = write(tmp_path, {"apiVersion": "v1", "kind": "List", "items": []})
    for command, message in (
        ("validate", "there is no DistributedTrainingJob here"),
        ("convert", "there is no TFJob (kubeflow.org/…) here"),
    ):
        assert run(command, empty) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (20261122, "metadata.name: must be text, but YAML reads 20261122 here: put the value in quotes"),
        (True, "metadata.name: must be text, but YAML reads true here: put the value in quotes"),
        (1.5, "metadata.name: must be text, but YAML reads 1.5 here: put the value in quotes"),
        (["a"], "metadata.name: must be text, not a list"),
        ("", "metadata.name: Required value: name or generateName is required"),
    ],
)
def test_a_name_that_yaml_reads_as_something_else_is_named(
    name: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {**manifest(), "metadata": {"name": name}}
    assert run("validate", write(tmp_path, body)) == 2  # type: ignore[arg-type]
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"namespace": "Bad NS"}, 'metadata.namespace: "Bad NS" is not the name of a namespace: write up to 63'),
        ({"namespace": 5}, "metadata.namespace: must be text, but YAML reads 5 here"),
        ({"labels": {"a": 1}}, "metadata.labels.a: must be text, but YAML reads 1 here: put the value in quotes"),
        ({"labels": ["a"]}, "metadata.labels: must be a mapping"),
        ({"annotations": {"a": True}}, "metadata.annotations.a: must be text, but YAML reads true here"),
        ({"name": None, "generateName": "a-"}, "metadata.name: Required value: write a name"),
    ],
)
def test_metadata_that_no_server_takes_is_refused(
    metadata: JsonObject, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body: JsonObject = {**manifest(), "metadata": {"name": "digits", **metadata}}
    assert run("validate", write(tmp_path, body)) == 2
    assert message in capsys.readouterr().err


def test_convert_takes_a_file_without_a_tfjob_next_to_one_with_a_tfjob(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    container: JsonObject = {"name": "tensorflow", "image": "x"}
    roles: JsonObject = {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    job: JsonObject = {**TFJOB, "spec": {"tfReplicaSpecs": roles}}
    other = write(tmp_path, CONFIG_MAP, name="other.yaml")
    assert run("convert", other, write(tmp_path, job)) == 0
    output = capsys.readouterr()
    assert f"{other}: code: ConfigMap: printed unchanged" in output.err
    assert "kind: ConfigMap" in output.out
    assert "kind: DistributedTrainingJob" in output.out
