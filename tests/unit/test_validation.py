"""Manifests are checked offline as an API server would check them (the comparison itself is in tests/api)."""

from __future__ import annotations

import pytest

from bad_manifests import RULE_BREAKERS, SCHEMA_BREAKERS
from builders import manifest
from dtj.api import rules
from dtj.api.job import Job
from dtj.api.validation import validate

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("case", RULE_BREAKERS)
def test_each_broken_rule_is_one_violation_with_its_field(case: str) -> None:
    (violation,) = validate(RULE_BREAKERS[case])
    assert violation.field.startswith(("spec", "metadata.name"))


def test_every_rule_has_a_manifest_that_breaks_it() -> None:
    broken = {violation.message for body in RULE_BREAKERS.values() for violation in validate(body)}
    checked = {rule.message for rule in rules.RULES if rule.holds is not None}
    assert {m for m in checked - broken if not m.startswith("the name is too long")} == set()


@pytest.mark.parametrize("case", SCHEMA_BREAKERS)
def test_types_and_ranges_are_checked_with_the_path_of_the_field(case: str) -> None:
    violations = validate(SCHEMA_BREAKERS[case])
    assert violations
    assert all(violation.field.startswith("spec.") for violation in violations)


def test_all_mistakes_are_told_at_once() -> None:
    found = validate(manifest(strategy="Horovod", port=0, runPolicy={"cleanPodPolicy": "Some"}))
    assert {violation.field for violation in found} == {"spec.strategy", "spec.port", "spec.runPolicy.cleanPodPolicy"}


def test_a_misspelt_field_is_named_with_what_was_meant() -> None:
    (violation,) = validate(SCHEMA_BREAKERS["a misspelt field"])
    assert str(violation) == 'spec.stratgy: unknown field "spec.stratgy"; did you mean "strategy"?'


def test_an_unknown_format_of_a_model_is_named_with_those_that_are_known() -> None:
    (violation,) = validate(SCHEMA_BREAKERS["an export as something unheard of"])
    assert str(violation) == (
        'spec.export.formats[1]: Unsupported value: "ONNX": supported values: "SavedModel", "TFLite", "TensorFlowJS"'
    )


def test_another_kind_is_refused_before_anything_else() -> None:
    violations = validate({**manifest(), "kind": "TFJob"})
    assert [str(violation) for violation in violations] == ['kind: must be "DistributedTrainingJob", not "TFJob"']


def test_a_manifest_without_a_name_is_refused() -> None:
    (violation,) = validate({**manifest(), "metadata": {}})
    assert violation.field == "metadata.name"


@pytest.mark.parametrize(
    "body",
    [
        manifest(roles={"worker": 1}),
        manifest(roles={"chief": 1, "worker": 2, "evaluator": 1}),
        manifest(strategy="ParameterServer", roles={"worker": 4, "ps": 2}),
        manifest(strategy="TPU", accelerator={"profile": "tpu-v5e", "topology": "2x4"}),
        manifest(checkpoint={"path": "gs://bucket/checkpoints", "everySteps": 100, "keep": 3}),
        manifest(
            template={"spec": {"containers": [{"name": "any", "image": "x", "resources": {"limits": {"cpu": 0.5}}}]}}
        ),
        manifest("d" * 46),
    ],
    ids=lambda body: body["spec"]["strategy"],
)
def test_what_users_write_is_valid_and_can_be_read(body: dict[str, object]) -> None:
    assert validate(body) == ()  # type: ignore[arg-type]
    assert Job.from_object(body).problems == ()  # type: ignore[arg-type]
