"""``dtj validate`` of a job, and files that hold more than jobs: a ConfigMap, a claim, a TFJob, a list."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue

from bad_tfjobs import role, tfjob
from builders import manifest
from dtj.api.json import JsonObject
from dtj.api.validation import validate
from support.commands import Done, Dtj
from support.kubeconfigs import kubeconfig
from support.local_runs import write

CONFIG_MAP: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}}
TFJOB: JsonObject = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "old"}}


def note(title: str, kind: str = "ConfigMap") -> str:
    return f"{title}: {kind}: left alone, because it is not a DistributedTrainingJob; kubectl apply creates it\n"


@pytest.mark.parametrize("command", ["validate", "explain"])
def test_objects_of_other_kinds_are_left_alone_with_a_note(dtj: Dtj, command: str, tmp_path: Path) -> None:
    claim: JsonObject = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    file = write(tmp_path, CONFIG_MAP, manifest("digits"), claim)
    done = dtj(command, file)
    assert done.code == 0
    assert done.err == note(f"{file}: document 1 (code)") + note(f"{file}: document 3", "PersistentVolumeClaim")
    assert "digits" in done.out


@pytest.mark.parametrize("command", ["validate", "explain", "run"])
def test_files_without_any_job_are_refused(dtj: Dtj, command: str, tmp_path: Path) -> None:
    file = write(tmp_path, CONFIG_MAP)
    wanted = note(f"{file}: code") + "there is no DistributedTrainingJob here\n"
    assert dtj(command, file) == Done(2, "", wanted)
    empty: JsonObject = {"apiVersion": "v1", "kind": "List", "items": []}
    assert dtj(command, write(tmp_path, empty)).complaint == "there is no DistributedTrainingJob here\n"


def test_a_tfjob_is_checked_as_the_operator_runs_it(dtj: Dtj, tmp_path: Path) -> None:
    assert dtj("validate", write(tmp_path, tfjob())).code == 0
    bad = dtj("validate", write(tmp_path, tfjob(Worker=role(), Trainer=role()), name="bad.yaml"))
    assert bad.code == 2
    assert "spec.tfReplicaSpecs.Trainer: is not a role of a TFJob" in bad.complaint


def test_an_old_tfjob_is_to_be_converted(dtj: Dtj, tmp_path: Path) -> None:
    assert dtj("validate", write(tmp_path, {**tfjob(), "apiVersion": "kubeflow.org/v1beta2"})).code == 2


def test_a_tfjob_is_explained_as_the_operator_runs_it(dtj: Dtj, tmp_path: Path) -> None:
    done = dtj("explain", write(tmp_path, tfjob(Chief=role(), Worker=role(2, restartPolicy="ExitCode"))))
    assert done.code == 0
    assert "mnist-worker-1.default.svc:2222" in done.out
    assert "worker  error       after exit code 42 or from 128 on, all start again" in done.out
    assert '"task":{"type":"chief","index":0},"environment":"cloud"' in done.out


@pytest.mark.parametrize("command", ["validate", "explain"])
def test_a_tfjob_without_a_spec_is_refused(dtj: Dtj, command: str, tmp_path: Path) -> None:
    assert "no replica trains" in dtj(command, write(tmp_path, TFJOB)).complaint


def test_a_tfjob_is_run_on_a_machine_once_it_is_converted(dtj: Dtj, tmp_path: Path) -> None:
    file = write(tmp_path, TFJOB)
    assert dtj("run", file).complaint == (
        f"{file}: old: this is a TFJob of Kubeflow: convert it with: dtj convert {file} > {Path(file).stem}-dtj.yaml\n"
    )


@pytest.mark.parametrize("command", ["explain", "submit", "submit -o yaml", "run", "run --cluster"])
def test_nothing_is_done_when_any_document_is_bad(
    dtj: Dtj, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    file = write(tmp_path, manifest("a"), manifest("b", port=0))
    assert dtj(*command.split(), file).complaint.startswith(f"{file}: document 2 (b): spec.port: ")
    assert not (tmp_path / "dtj-runs").exists()


def test_the_items_of_a_list_are_checked_one_by_one(dtj: Dtj, tmp_path: Path) -> None:
    items = [CONFIG_MAP, manifest("a"), manifest("b", port=0)]
    file = write(tmp_path, {"apiVersion": "v1", "kind": "List", "items": items})  # type: ignore[dict-item]
    done = dtj("validate", file)
    assert (done.code, done.out) == (2, f"{file}: a: valid\n")
    assert done.err.startswith(note(f"{file}: items[0] (code)") + f"{file}: items[2] (b): spec.port: ")


def test_a_file_without_a_job_next_to_one_with_a_job_is_left_alone(dtj: Dtj, tmp_path: Path) -> None:
    other = write(tmp_path, CONFIG_MAP, name="other.yaml")
    assert dtj("validate", other, write(tmp_path, manifest("digits"))).code == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"apiVersion": None}, 'apiVersion: Required value: write "training.dtj.dev/v1alpha1"'),
        ({"apiVersion": "v1"}, 'apiVersion: must be "training.dtj.dev/v1alpha1", not "v1"'),
        ({"kind": None}, 'kind: Required value: write "DistributedTrainingJob"'),
        ({"kind": "DistributedTrainingjob"}, 'kind: must be "DistributedTrainingJob", not "DistributedTrainingjob"'),
        ({"apiVersion": "training.dtj.dev/v2"}, 'apiVersion: must be "training.dtj.dev/v1alpha1", not'),
        *(
            ({"metadata": {"name": name}}, f"metadata.name: {words}")
            for name, words in (
                (20261122, "must be text, but YAML reads 20261122 here: put the value in quotes"),
                (True, "must be text, but YAML reads true here: put the value in quotes"),
                (1.5, "must be text, but YAML reads 1.5 here: put the value in quotes"),
                (["a"], "must be text, not a list"),
                ("", "Required value: write a name\n"),
                (None, "Required value: write a name\n"),
            )
        ),
        *(
            ({"metadata": {"name": "digits", **metadata}}, f"metadata.{words}")
            for metadata, words in (
                ({"namespace": "Bad NS"}, 'namespace: "Bad NS" is not the name of a namespace: write up to 63'),
                ({"namespace": 5}, "namespace: must be text, but YAML reads 5 here"),
                ({"labels": {"a": 1}}, "labels.a: must be text, but YAML reads 1 here: put the value in quotes"),
                ({"labels": ["a"]}, "labels: must be a mapping"),
                ({"annotations": {"a": True}}, "annotations.a: must be text, but YAML reads true here"),
                ({"name": None, "generateName": "a-"}, "name: Required value: write a name"),
            )
        ),
    ],
)
def test_a_job_of_another_kind_or_version_or_with_metadata_that_no_server_takes_is_refused(
    dtj: Dtj, fields: JsonObject, message: str, tmp_path: Path
) -> None:
    body: JsonObject = {key: value for key, value in {**manifest(), **fields}.items() if value is not None}
    assert message in dtj("validate", write(tmp_path, body)).complaint


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
