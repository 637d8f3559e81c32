"""``dtj validate`` and the entry point: what is printed, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue

from builders import manifest
from dtj import __version__
from dtj.api.json import JsonObject
from dtj.api.validation import validate
from dtj.cli.main import cli
from support.local_runs import write


def run(*arguments: object) -> object:
    return cli.main([str(argument) for argument in arguments], standalone_mode=False)


def test_a_broken_rule_has_the_words_of_the_rule_before_it_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = manifest("b", port=0)
    file = write(tmp_path, manifest("a"), wrong)
    assert run("validate", file) == 2
    output = capsys.readouterr()
    assert output.out == f"{file}: a: valid\n"
    assert output.err == f"{file}: document 2 (b): {validate(wrong)[0]}\n"
    assert "spec.port: " in output.err


def test_a_spec_that_the_operator_would_not_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    container: JsonObject = {"name": "trainer", "image": "i", "env": [{"name": "SCRIPT", "value": "<&>ä" * 20_000}]}
    long = manifest("long", template={"spec": {"containers": [container]}})
    assert run("validate", write(tmp_path, long)) == 2
    printed = capsys.readouterr().err
    assert "long: spec: is 400," in printed
    assert "the operator reads 262,144 at most: put scripts and data into a ConfigMap" in printed


def test_a_spec_with_more_values_than_the_operator_reads_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    containers: list[JsonValue] = [{"name": f"c{n}", "image": "i", "args": ["a,b"] * 256} for n in range(15)]
    role: JsonObject = {"replicas": 1, "template": {"spec": {"containers": [{"name": "trainer"}, *containers]}}}
    roles: JsonObject = {"chief": role, "worker": role, "evaluator": role}
    assert run("validate", write(tmp_path, manifest("many", replicaSpecs=roles))) == 2
    assert "many: spec: has 11," in (printed := capsys.readouterr().err)
    assert " values, and the operator reads 10,000 at most: " in printed


def test_an_unknown_accelerator_profile_is_a_mistake_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("validate", write(tmp_path, manifest(accelerator={"profile": "abacus"}))) == 2
    assert 'spec.accelerator.profile: there is no accelerator profile "abacus"' in capsys.readouterr().err


def test_a_name_that_is_used_twice_names_the_other_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write(tmp_path, manifest("a"), name="first.yaml")
    second = write(tmp_path, manifest("a"), name="second.yaml")
    assert run("validate", first, second) == 2
    assert capsys.readouterr().err == (
        f'{second}: a: metadata.name: "a" is taken by another job here ({first}: a); choose another name\n'
    )


def test_jobs_of_one_name_in_two_namespaces_are_two_jobs(tmp_path: Path) -> None:
    there = manifest("a")
    there["metadata"] = {"name": "a", "namespace": "there"}
    assert run("validate", write(tmp_path, manifest("a"), there)) == 0


def test_all_files_are_looked_at_even_when_the_first_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path, manifest("a"))
    assert run("validate", tmp_path / "none.yaml", good) == 2
    output = capsys.readouterr()
    assert output.out == f"{good}: a: valid\n"
    assert output.err == f"{tmp_path}/none.yaml: file not found\n"


def test_dtj_alone_shows_where_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    output = capsys.readouterr().out
    assert "dtj init first" in output
    assert "dtj run job.yaml" in output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--version"], 0, f"dtj {__version__}"),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["validate"], 2, "Missing argument 'FILE...'"),
        (["run", "--timeout", "0", "x.yaml"], 2, '"0" is not a duration: write 30s, 5m or 1h30m'),
        (["run", "none.yaml"], 2, "none.yaml: file not found"),
    ],
)
def test_the_program_ends_with_the_right_code_and_without_a_traceback(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dtj.cli.main", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
