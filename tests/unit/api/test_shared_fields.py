"""Models share the sets of the fields that they were given, and nobody notices."""

from __future__ import annotations

import pytest

from dtj.api import base
from dtj.api.base import SharedFieldsSet
from dtj.api.status import JobStatus

CONDITION = {"type": "Ready", "status": "True", "reason": "AllReady", "message": "all pods are ready"}


def test_conditions_with_the_same_fields_share_one_set() -> None:
    first, second = (JobStatus.model_validate({"conditions": [CONDITION]}).conditions[0] for _ in range(2))
    assert first.model_fields_set is second.model_fields_set
    assert first.model_fields_set == set(CONDITION)


def test_a_copy_with_another_field_leaves_the_set_of_the_others_as_it_is() -> None:
    given = JobStatus.model_validate({"state": "Running"})
    changed = given.model_copy(update={"attempt": 2})
    assert changed.model_fields_set == {"state", "attempt"}
    assert given.model_fields_set == {"state"}
    assert JobStatus.model_validate({"state": "Failed"}).model_fields_set == {"state"}


def test_only_a_limited_number_of_sets_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Part(SharedFieldsSet):
        a: int = 0
        b: int = 0

    kept: dict[frozenset[str], set[str]] = {}
    monkeypatch.setattr(base, "_SETS", kept)
    monkeypatch.setattr(base, "MAX_SETS", 1)
    parts = [Part(a=1), Part(b=1), Part(a=1, b=1)]
    assert [part.model_fields_set for part in parts] == [{"a"}, {"b"}, {"a", "b"}]
    assert list(kept) == [{"a"}]
