"""Pods that an API server refuses are refused offline (the comparison with a server is in tests/api)."""

from __future__ import annotations

import pytest

from bad_pods import REFUSED_AT_APPLY, REFUSED_BY_US, TAKEN, pod
from builders import CLAIM_TEMPLATE, manifest
from dtj.api.json import JsonObject
from dtj.api.validation import validate

REFUSED = {**REFUSED_AT_APPLY, **REFUSED_BY_US}


def lines(**spec: object) -> list[str]:
    return [str(violation) for violation in validate(manifest(**spec))]  # type: ignore[arg-type]


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_that_a_server_refuses_is_refused_with_the_field(case: str) -> None:
    violations = validate(manifest(template={"spec": REFUSED[case]}))
    assert violations
    assert all(violation.field.startswith("spec.template") for violation in violations)


@pytest.mark.parametrize("case", ["a misspelt field", "two variables of one name"])
def test_the_template_of_a_role_is_checked_as_the_shared_one(case: str) -> None:
    violations = validate(manifest(replicaSpecs={"worker": {"template": {"spec": REFUSED[case]}}}))
    assert violations
    assert all("worker" in violation.field for violation in violations)


@pytest.mark.parametrize("case", TAKEN)
def test_a_pod_that_a_server_takes_is_valid(case: str) -> None:
    assert lines(template={"spec": TAKEN[case]}) == []


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            REFUSED_AT_APPLY["a misspelt field"],
            'spec.template.spec.nodeSelektor: unknown field "spec.template.spec.nodeSelektor"; did you mean '
            '"nodeSelector"?',
        ),
        (REFUSED_AT_APPLY["a field that is none"], 'spec.template.spec.gpus: unknown field "spec.template.spec.gpus"'),
        (
            REFUSED_AT_APPLY["two containers of one name"],
            'spec.template.spec.containers[1]: Duplicate value: {"name":"trainer"}',
        ),
        (
            REFUSED_AT_APPLY["a variable that is a number"],
            'spec.template.spec.containers[0].env[0].value: Invalid value: "integer": '
            'spec.template.spec.containers[0].env[0].value in body must be of type string: "integer"; '
            "put the value in quotes",
        ),
        (
            REFUSED_AT_APPLY["a port that is text"],
            'spec.template.spec.containers[0].ports[0].containerPort: Invalid value: "string": '
            'spec.template.spec.containers[0].ports[0].containerPort in body must be of type integer: "string"; remove '
            "the quotes around the value: 80",
        ),
    ],
)
def test_the_line_names_the_field_what_is_wrong_and_what_helps(spec: JsonObject, line: str) -> None:
    assert lines(template={"spec": spec}) == [line]


@pytest.mark.parametrize("how", [{"volume": {"emptyDir": {}}}, {"claimTemplate": CLAIM_TEMPLATE}])
def test_the_volume_and_the_path_of_the_checkpoint_must_be_free(how: JsonObject) -> None:
    mounts: JsonObject = {"volumeMounts": [{"name": "v", "mountPath": "/dtj/checkpoint"}]}
    template = {"spec": pod(mounts, volumes=[{"name": "v"}, {"name": "dtj-checkpoint"}])}
    assert lines(template=template) == []
    assert lines(template=template, checkpoint={"path": "/elsewhere"}) == []
    assert lines(template=template, checkpoint=how) == [
        "spec.checkpoint: the operator adds a volume dtj-checkpoint to each pod: rename the one of the pod template",
        "spec.checkpoint.path: the operator mounts the checkpoint volume into each container, and one of the pod "
        "template has another volume at this path: choose another path for one of them",
    ]


def test_the_volume_of_the_checkpoint_can_be_mounted_a_second_time() -> None:
    mounts: JsonObject = {"volumeMounts": [{"name": "dtj-checkpoint", "mountPath": "/models", "subPath": "models"}]}
    assert lines(template={"spec": pod(mounts)}, checkpoint={"volume": {"emptyDir": {}}}) == []


def test_the_trainer_needs_no_image_where_the_operator_can_have_one() -> None:
    assert lines(template={"spec": {"containers": [{"name": "any"}]}}) == []


def test_the_source_of_a_checkpoint_is_one() -> None:
    (line,) = lines(checkpoint={"volume": {"emptyDir": {}, "nfs": {"server": "a", "path": "/b"}}})
    assert line.startswith("spec.checkpoint.volume: Too many: 2: must have at most 1 item; it has emptyDir, nfs")
