"""The API conventions of Kubernetes that hold for the whole schema of a job (docs/adr/0026-shape-of-the-api.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

from dtj.api.crd import SELECTABLE_FIELDS, custom_resource_definition, job_schema
from dtj.api.json import JsonObject, dig, objects
from dtj.api.rules import RULES
from dtj.api.schema import generated_job_schema
from dtj.core.status import format_deadline, format_time


def schemas(schema: JsonObject, path: str = "") -> Iterator[tuple[str, JsonObject]]:
    """The schema and all schemas in it, Kubernetes' own included, with their paths."""
    yield path, schema
    properties = schema.get("properties")
    for name, field in (properties if isinstance(properties, dict) else {}).items():
        assert isinstance(field, dict)
        yield from schemas(field, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        inner = schema.get(key)
        if isinstance(inner, dict):
            yield from schemas(inner, path + mark)


ALL = dict(schemas(job_schema()))


def test_the_schema_that_commands_read_is_the_one_of_the_types() -> None:
    """If this fails, run ``make generate``."""
    assert json.dumps(generated_job_schema()) == json.dumps(job_schema())


def test_every_integer_has_a_width_that_holds_its_limits() -> None:
    integers = {path: schema for path, schema in ALL.items() if schema.get("type") == "integer"}
    assert len(integers) > 60
    assert {schema.get("format") for schema in integers.values()} == {"int32", "int64"}
    largest = {"int32": 2**31 - 1, "int64": 2**63 - 1}
    for path, schema in integers.items():
        for limit in (schema.get("minimum", 0), schema.get("maximum", 0)):
            assert isinstance(limit, int), path
            assert abs(limit) <= largest[str(schema["format"])], path


def test_every_list_says_how_it_merges() -> None:
    lists = {
        path: schema.get("x-kubernetes-list-type") for path, schema in ALL.items() if schema.get("type") == "array"
    }
    assert len(lists) > 40
    assert [path for path, kind in lists.items() if kind not in ("atomic", "map", "set")] == []
    assert ALL[".status.conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    ours = {path: kind for path, kind in lists.items() if path.startswith(".status")}
    assert ours == {
        ".status.conditions": "map",
        ".status.nodeLosses": "atomic",
        ".status.progress.corrupt.workers": "atomic",
        ".status.progress.stragglers": "atomic",
        ".status.progress.unchecked": "atomic",
        ".status.export.formats": "atomic",
    }


def test_every_time_of_the_status_is_a_date_time() -> None:
    times = {path for path, schema in ALL.items() if path.startswith(".status") and schema.get("format") == "date-time"}
    described = {
        path
        for path, schema in ALL.items()
        if path.startswith(".status") and "(RFC 3339)" in str(schema.get("description"))
    }
    named = {path for path in ALL if path.startswith(".status") and path.endswith(("Time", "At", "Before"))}
    assert times == described | named | {".status.replicaStatuses.*.restarting.*"}
    assert len(times) == 13


def test_times_are_written_as_date_times() -> None:
    """As strfmt.DateTime of the API server reads them: seconds, and Z."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(moment) == "2026-01-02T02:04:05Z"
    assert format_deadline(moment) == "2026-01-02T02:04:06Z"
    assert format_time(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00Z"


def test_the_selectable_fields_are_plain_fields_of_the_schema() -> None:
    (version,) = objects(dig(custom_resource_definition(), "spec", "versions"))
    assert version["selectableFields"] == [{"jsonPath": path} for path in SELECTABLE_FIELDS]
    assert len(SELECTABLE_FIELDS) <= 8
    assert {ALL[path]["type"] for path in SELECTABLE_FIELDS} <= {"string", "boolean", "integer"}


def test_no_message_of_a_rule_is_cut_off() -> None:
    messages = [rule.message for rule in RULES]
    assert [message for message in messages if message != message.strip() or message.endswith((":", ",", ";"))] == []
