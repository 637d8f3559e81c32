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
from support.commands import Done, Dtj
from support.local_runs import write


def test_a_broken_rule_has_the_words_of_the_rule_before_it_the_document(dtj: Dtj, tmp_path: Path) -> None:
    wrong = manifest("b", port=0)
    file = write(tmp_path, manifest("a"), wrong)
    complaint = f"{file}: document 2 (b): {validate(wrong)[0]}\n"
    assert "spec.port: " in complaint
    assert dtj("validate", file) == Done(2, f"{file}: a: valid\n", complaint)


def test_a_spec_that_the_operator_would_not_read_is_refused(dtj: Dtj, tmp_path: Path) -> None:
    container: JsonObject = {"name": "trainer", "image": "i", "env": [{"name": "SCRIPT", "value": "<&>ä" * 20_000}]}
    long = manifest("long", template={"spec": {"containers": [container]}})
    complaint = dtj("validate", write(tmp_path, long)).complaint
    assert "long: spec: is 400," in complaint
    assert "the operator reads 262,144 at most: put scripts and data into a ConfigMap" in complaint
    containers: list[JsonValue] = [{"name": f"c{n}", "image": "i", "args": ["a,b"] * 256} for n in range(15)]
    role: JsonObject = {"replicas": 1, "template": {"spec": {"containers": [{"name": "trainer"}, *containers]}}}
    many = manifest("many", replicaSpecs={"chief": role, "worker": role, "evaluator": role})
    complaint = dtj("validate", write(tmp_path, many)).complaint
    assert "many: spec: has 11," in complaint
    assert " values, and the operator reads 10,000 at most: " in complaint


def test_an_unknown_accelerator_profile_is_a_mistake_too(dtj: Dtj, tmp_path: Path) -> None:
    file = write(tmp_path, manifest(accelerator={"profile": "abacus"}))
    assert 'spec.accelerator.profile: there is no accelerator profile "abacus"' in dtj("validate", file).complaint


def test_an_annotation_of_kueue_that_the_operator_does_not_follow_is_a_mistake_too(dtj: Dtj, tmp_path: Path) -> None:
    body = manifest(runPolicy={"scheduling": {"gang": "Kueue", "queue": "gpus"}})
    metadata: JsonObject = {"name": "digits", "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    complaint = dtj("validate", write(tmp_path, {**body, "metadata": metadata})).complaint
    assert "waits in its queue again when its number of workers changes: remove it" in complaint


def test_a_name_that_is_used_twice_names_the_other_place(dtj: Dtj, tmp_path: Path) -> None:
    first = write(tmp_path, manifest("a"), name="first.yaml")
    second = write(tmp_path, manifest("a"), name="second.yaml")
    assert dtj("validate", first, second).err == (
        f'{second}: a: metadata.name: "a" is taken by another job here ({first}: a); choose another name\n'
    )
    there: JsonObject = {**manifest("a"), "metadata": {"name": "a", "namespace": "there"}}
    assert dtj("validate", write(tmp_path, manifest("a"), there)).code == 0, "in two namespaces they are two jobs"


def test_all_files_are_looked_at_even_when_the_first_is_bad(dtj: Dtj, tmp_path: Path) -> None:
    good = write(tmp_path, manifest("a"))
    done = dtj("validate", tmp_path / "none.yaml", good)
    assert done == Done(2, f"{good}: a: valid\n", f"{tmp_path}/none.yaml: file not found\n")


def test_dtj_alone_shows_where_to_start(dtj: Dtj) -> None:
    done = dtj()
    assert done.code == 0
    assert "dtj init first" in done.out
    assert "dtj run job.yaml" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--version"], 0, f"dtj {__version__}"),
        (["validate"], 2, "Missing argument 'FILE...'"),
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
