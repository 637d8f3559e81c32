"""docs/tools.md: the Experiment is one that Katib would accept, and its trials are valid jobs.

The rules are those of Katib 0.19: pkg/webhook/v1beta1/experiment/validator and pkg/webhook/v1beta1/pod of
kubeflow/katib.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from dtj.api import names
from dtj.api.json import JsonObject
from dtj.api.validation import validate
from dtj.cli.explain.simulation import simulate
from dtj.core.platform import Platform
from support.snippets import blocks

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
EXPERIMENT: Any = next(
    body
    for block in blocks(PAGE)
    if block.language == "yaml"
    for body in yaml.safe_load_all(block.text)
    if body.get("kind") == "Experiment"
)
TEMPLATE = EXPERIMENT["spec"]["trialTemplate"]


def trial() -> JsonObject:
    """The job of a trial: Katib replaces the parameters in the text of the template, and gives it the trial's name."""
    text = json.dumps(TEMPLATE["trialSpec"])
    for parameter in TEMPLATE["trialParameters"]:
        text = text.replace(f"${{trialParameters.{parameter['name']}}}", "0.0173")
    body: JsonObject = json.loads(text)
    assert "${" not in text
    assert "metadata" not in body, "Katib refuses a name and a namespace in the template"
    return {**body, "metadata": {"name": "learning-rate-7b2x9k4p", "namespace": EXPERIMENT["metadata"]["namespace"]}}


def test_a_trial_is_a_valid_job() -> None:
    assert list(validate(trial())) == []


def test_every_parameter_is_one_of_the_experiment_and_is_used() -> None:
    known = {parameter["name"] for parameter in EXPERIMENT["spec"]["parameters"]}
    assert {parameter["reference"] for parameter in TEMPLATE["trialParameters"]} == known
    for parameter in TEMPLATE["trialParameters"]:
        assert f"${{trialParameters.{parameter['name']}}}" in json.dumps(TEMPLATE["trialSpec"])


def test_one_pod_of_a_trial_is_the_primary_one_and_has_the_primary_container() -> None:
    found = simulate(trial(), Platform(), namespace="default", now=datetime(2026, 1, 1, tzinfo=UTC))
    pods: list[Any] = [item for item in found.objects if item["kind"] == "Pod"]
    labels = TEMPLATE["primaryPodLabels"].items()
    primary = [pod for pod in pods if labels <= pod["metadata"]["labels"].items()]
    assert len(pods) == 2
    assert len(primary) == 1
    assert TEMPLATE["primaryContainerName"] in [each["name"] for each in primary[0]["spec"]["containers"]]
    assert [owner["kind"] for owner in primary[0]["metadata"]["ownerReferences"]] == [names.KIND]


def test_the_conditions_are_conditions_of_a_job() -> None:
    for field, kind in (("successCondition", names.Condition.COMPLETE), ("failureCondition", names.Condition.FAILED)):
        assert TEMPLATE[field] == f'status.conditions.#(type=="{kind}")#|#(status=="True")#'


def test_the_filter_has_a_group_for_the_name_and_one_for_the_value() -> None:
    (pattern,) = EXPERIMENT["spec"]["metricsCollectorSpec"]["source"]["filter"]["metricsFormat"]
    assert re.fullmatch(r".*\(.*\).*\(.*\).*", pattern)
    assert ";" not in pattern, "Katib joins the filters by it"
    line = "held-out: top accuracy 0.5  accuracy 0.9900  loss 0.0312  (360 examples that were not trained on)"
    assert re.findall(pattern, line) == [(EXPERIMENT["spec"]["objective"]["objectiveMetricName"], "0.9900")]
    assert re.findall(pattern, "step 225/225 (100%)  epoch 5/5  loss 0.0052  accuracy 0.998") == []


def test_the_page_names_the_kind_and_its_resource_as_katib_does() -> None:
    text = PAGE.read_text()
    assert f"- {names.KIND}.{names.VERSION}.{names.GROUP}\n" in text
    assert f"apiGroups: [{names.GROUP}], resources: [{names.PLURAL}], verbs: [get, list, watch, create, delete]" in text
