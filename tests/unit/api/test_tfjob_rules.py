"""What a TFJob must hold, said offline."""

from __future__ import annotations

import pytest

from bad_tfjobs import ACCEPTED, REFUSED
from builders import stored
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, text
from dtj.api.tfjob.rules import check
from dtj.core.platform import Platform
from dtj.core.validity import problems


def lines(body: JsonObject) -> list[str]:
    spec = dig(body, "spec")
    assert isinstance(spec, dict)
    return [str(violation) for violation in check(name=text(dig(body, "metadata", "name")), spec=spec)]


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_never_end_well_is_refused_in_one_line_with_field_value_and_remedy(case: str) -> None:
    body, line = REFUSED[case]
    assert lines(body) == [line]


@pytest.mark.parametrize("case", REFUSED)
def test_the_operator_says_the_same_line_in_a_cluster_without_the_policy(case: str) -> None:
    body, line = REFUSED[case]
    assert [problem.message for problem in problems(Job.from_object(stored(body)), Platform())] == [line]


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_kubeflow_runs_to_its_end_as_written_is_accepted(case: str) -> None:
    assert lines(ACCEPTED[case]) == []
