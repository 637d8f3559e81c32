"""The chart and the images: what can be checked without helm and without a build."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import JsonValue

from dtj.api.goodput import HOLDS_NOTHING, Use
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.profiles import Profile
from dtj.engine.metrics import TABLE

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "dtj"
DOCKERFILES = (ROOT / "Dockerfile", ROOT / "trainer-image" / "Dockerfile")


class TestTheChart:
    def test_the_schema_knows_each_documented_value_and_no_other(self) -> None:
        documented = set(re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
        named = set(_named_paths(_schema(), ""))
        # What is Kubernetes' own is documented as a whole, and `global` is Helm's: a chart above this one may set it.
        of_kubernetes = {path for path in named if path.startswith(("resources.", "affinity."))}
        assert named - of_kubernetes - {"global"} == documented

    def test_a_value_that_is_no_value_of_ours_is_refused_at_every_level(self) -> None:
        assert [
            path for path, schema in _objects(_schema(), "") if schema.get("additionalProperties") is not False
        ] == []

    def test_an_accelerator_profile_has_the_fields_that_the_operator_reads(self) -> None:
        item = dig(_schema(), "properties", "acceleratorProfiles", "items")
        known = Profile.model_json_schema(by_alias=True)
        assert _names(item) == _names(known)
        assert _names(dig(item, "properties", "tpu")) == _names(dig(known, "$defs", "TpuHosts"))

    def test_an_accelerator_profile_may_ask_for_whole_numbers_and_no_booleans(self) -> None:
        values = dig(_schema(), "properties", "acceleratorProfiles", "items", "properties", "resources")
        assert dig(values, "additionalProperties", "type") == ["string", "integer"]

    def test_the_dashboard_and_the_alerts_ask_for_metrics_that_the_operator_has(self) -> None:
        for queries in (_shown(), _alerts()):
            asked = _asked(queries)
            assert asked
            assert asked <= _series()

    def test_the_dashboard_and_the_alerts_count_no_queue_of_another_program(self) -> None:
        found = [text for query in (*_shown(), *_alerts()) for text in re.findall(r"workqueue_\w+.{0,12}", query)]
        assert found
        assert [query for query in found if not re.match(r'\w+{name="jobs"', query)] == []

    def test_the_goodput_of_the_dashboard_is_that_of_a_status(self) -> None:
        states = (re.findall(r'seconds_total\{state\W+([\w|]+)"', query) for query in _shown())
        assert [found for found in states if found] == [[Use.TRAINING, "|".join(HOLDS_NOTHING)]]


class TestTheImages:
    @pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
    def test_it_is_built_from_a_base_that_can_be_pinned_and_runs_as_a_number_that_is_not_root(self, path: Path) -> None:
        lines = path.read_text().splitlines()
        assert "ARG BASE=debian:bookworm-slim" in lines
        stages = [line.split() for line in lines if line.startswith("FROM")]
        named = {words[3] for words in stages if len(words) > 2}
        assert {words[1] for words in stages} - named == {"${BASE}"}
        assert [line for line in lines if line.startswith("USER")] == ["USER 65532:65532"]

    @pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
    def test_whatever_pip_downloads_has_a_known_hash(self, path: Path) -> None:
        text = path.read_text().replace("\\\n", " ")
        installs = re.findall(r"pip install [^&\n]*", text)
        assert installs
        for install in installs:
            assert "--no-deps" in install
            assert "--require-hashes" in install or "--no-index" in install


def _schema() -> JsonObject:
    schema: JsonObject = json.loads((CHART / "values.schema.json").read_text())
    return schema


def _objects(schema: JsonObject, path: str) -> Iterator[tuple[str, JsonObject]]:
    """The schema of each object whose properties are named, by its path."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    yield path, schema
    for name, inner in properties.items():
        assert isinstance(inner, dict)
        yield from _objects(inner, f"{path}{name}.")


def _named_paths(schema: JsonObject, path: str) -> Iterator[str]:
    """The path of each property that is named."""
    for prefix, inner in _objects(schema, path):
        yield from (f"{prefix}{name}" for name in _names(inner))


def _names(schema: JsonValue) -> set[str]:
    found = dig(schema, "properties")
    return set(found) if isinstance(found, dict) else set()


def _shown() -> Iterator[str]:
    """Each query of the dashboard."""
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    return (text(target["expr"]) for panel in objects(dashboard["panels"]) for target in objects(panel["targets"]))


def _alerts() -> Iterator[str]:
    """The expression of each alert."""
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    return (rule["expr"] for group in groups for rule in group["rules"])


def _asked(queries: Iterable[str]) -> set[str]:
    return {name for query in queries for name in re.findall(r"\b(?:dtj|workqueue)_\w+", query)}


def _series() -> set[str]:
    """The name of each time series of an operator."""
    histogram = ("_bucket", "_sum", "_count")
    return {f"{m.shown}{suffix}" for m in TABLE for suffix in (histogram if m.kind == "histogram" else ("",))}
