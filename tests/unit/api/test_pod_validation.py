"""Pods that an API server refuses are refused offline (the comparison with a server is in tests/api)."""

from __future__ import annotations

import pytest

from bad_pods import REFUSED_AS_PODS, REFUSED_AT_APPLY, REFUSED_BY_US, TAKEN, pod, resources
from builders import CLAIM_TEMPLATE, manifest
from dtj.api.json import JsonObject
from dtj.api.validation import validate

pytestmark = pytest.mark.unit

REFUSED = {**REFUSED_AT_APPLY, **REFUSED_AS_PODS, **REFUSED_BY_US}


def lines(**spec: object) -> list[str]:
    return [str(violation) for violation in validate(manifest(**spec))]  # type: ignore[arg-type]


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_that_a_server_refuses_is_refused_with_the_field(case: str) -> None:
    violations = validate(manifest(template={"spec": REFUSED[case]}))
    assert violations
    assert all(violation.field.startswith("spec.template") for violation in violations)


@pytest.mark.parametrize("case", REFUSED)
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
        (
            REFUSED_AT_APPLY["a field that is none"],
            'spec.template.spec.gpus: unknown field "spec.template.spec.gpus"',
        ),
        (
            REFUSED_AT_APPLY["a mount without a volume"],
            "spec.template.spec.containers: a container mounts a volume that does not exist: "
            "add it under spec.volumes, or remove the volumeMount; it is d",
        ),
        (
            REFUSED_AT_APPLY["two containers of one name"],
            'spec.template.spec.containers[1]: Duplicate value: {"name":"trainer"}',
        ),
        (
            REFUSED_AS_PODS["a request above the limit"],
            'spec.template.spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to '
            "cpu limit of 1",
        ),
        (
            REFUSED_AS_PODS["a resource that is none"],
            'spec.template.spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource '
            'for containers; did you mean "nvidia.com/gpu"?',
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


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"labels": {"a b": "c"}}, "spec.template.metadata.labels: Invalid value"),
        ({"labels": {"a": "c d"}}, "spec.template.metadata.labels: Invalid value"),
        ({"annotations": {"a b": "c"}}, "spec.template.metadata.annotations: Invalid value"),
    ],
)
def test_labels_of_the_template_are_checked(metadata: JsonObject, words: str) -> None:
    (line,) = lines(template={"metadata": metadata, "spec": pod()})
    assert line.startswith(words)


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ({"resources": {"limits": {"cpu": 1}, "requests": {"cpu": 2}}}, ".resources.requests: Invalid value"),
        ({"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]}, ".env: a variable has"),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]}, ".env[0].valueFrom.fieldRef"),
        ({"nodeSelector": {"a b": "c"}}, ".nodeSelector: Invalid value"),
        ({"tolerations": [{"value": "x"}]}, ".tolerations[0].operator: Invalid value"),
    ],
)
def test_what_a_role_adds_to_the_pods_is_checked(role: JsonObject, words: str) -> None:
    found = lines(replicaSpecs={"worker": role})
    assert any(line.startswith(f"spec.replicaSpecs[worker]{words}") for line in found), found


@pytest.mark.parametrize("how", [{"volume": {"emptyDir": {}}}, {"claimTemplate": CLAIM_TEMPLATE}])
def test_the_volume_and_the_path_of_the_checkpoint_must_be_free(how: JsonObject) -> None:
    mounts: JsonObject = {"volumeMounts": [{"name": "v", "mountPath": "/dtj/checkpoint"}]}
    volumes = [{"name": "v"}, {"name": "dtj-checkpoint"}]
    template = {"spec": pod(mounts, volumes=volumes)}
    assert lines(template=template) == []
    assert lines(template=template, checkpoint=how) == [
        "spec.template.spec.volumes[1].name: spec.checkpoint adds a volume dtj-checkpoint: rename this one",
        'spec.template.spec.containers[0].volumeMounts[0].mountPath: spec.checkpoint is mounted at "/dtj/checkpoint": '
        "choose another path for one of them",
    ]


def test_the_volume_of_the_checkpoint_can_be_mounted_a_second_time() -> None:
    mounts: JsonObject = {"volumeMounts": [{"name": "dtj-checkpoint", "mountPath": "/models", "subPath": "models"}]}
    assert lines(template={"spec": pod(mounts)}, checkpoint={"volume": {"emptyDir": {}}}) == []


def test_the_trainer_needs_no_image_where_the_operator_can_have_one() -> None:
    assert lines(template={"spec": {"containers": [{"name": "any"}]}}) == []


def test_the_source_of_a_checkpoint_is_one() -> None:
    (line,) = lines(checkpoint={"volume": {"emptyDir": {}, "nfs": {"server": "a", "path": "/b"}}})
    assert line.startswith("spec.checkpoint.volume: Too many: 2: must have at most 1 item; it has emptyDir, nfs")


@pytest.mark.parametrize("field", ["serviceAccountName", "priorityClassName", "runtimeClassName"])
def test_names_of_objects_that_cannot_exist_are_refused(field: str) -> None:
    (line,) = lines(template={"spec": {**pod(), field: "A_b"}})
    assert line.startswith(f'spec.template.spec.{field}: Invalid value: "A_b": a lowercase RFC 1123 subdomain must')


def test_each_mistake_is_a_line_of_its_own() -> None:
    spec = {**resources(limits={"cpu": 1}, requests={"cpu": 2}), "nodeSelector": {"a b": "c"}, "dnsPolicy": "None"}
    assert len(lines(template={"spec": spec})) == 3
