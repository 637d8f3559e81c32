"""What must hold for the tree itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import generate_reference
import levels
import pytest
import size
import yaml

from dtj.api import names
from dtj.api.crd import custom_resource_definition, job_schema
from dtj.api.json import JsonObject

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / ".github").glob("*.md"), ROOT / ".github" / "security-insights.yml"])


def test_operator_is_no_package_so_that_the_standard_librarys_is_found() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    subprocess.run([sys.executable, "-c", "import dataclasses, operator; operator.itemgetter"], cwd=ROOT, check=True)


def test_the_crd_is_small_enough_for_a_plain_kubectl_apply() -> None:
    """kubectl keeps it as JSON in an annotation; all annotations of an object may have 262,144 bytes."""
    (path,) = (ROOT / "crds").glob("*.yaml")
    crd = yaml.safe_load(path.read_text())
    assert len(json.dumps(crd, separators=(",", ":"))) < 220_000
    assert crd == custom_resource_definition()


def test_every_field_of_ours_is_described_and_the_description_begins_with_its_name() -> None:
    undescribed = [
        path
        for path, field in _fields(job_schema(), "")
        if not str(field.get("description", "")).startswith(_name(path))
    ]
    assert undescribed == []


def test_each_file_of_tests_is_of_a_level() -> None:
    """A level runs what is below its folders: a file elsewhere would never run."""
    every = levels.Table(levels.TABLE.read_text()).levels.values()
    folders = [test for level in every for test in level.tests if "::" not in test]
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [file for file in files if not file.startswith(tuple(folders))] == []


def test_no_python_file_is_longer_than_five_hundred_lines() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    long = [name for name in listed.split() if len((ROOT / name).read_text().splitlines()) > 500]
    assert long == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_beside_the_documents_links_to_files_that_are_there(path: Path) -> None:
    """Those below docs/ are checked when the site is built."""
    targets = re.findall(r"\]\((?!https:)([^)#]+)", path.read_text())
    targets += re.findall(r"/dtj/blob/main/(\S+)", path.read_text())
    base = path.parent if path.suffix == ".md" else ROOT
    assert [target for target in targets if not (base / target).exists()] == []


def _name(path: str) -> str:
    return path.rpartition(".")[2]


_FROM_KUBERNETES = {
    *("template", "volume", "tolerations", "env", "resources", "metadata"),
    *("selector", "dataSource", "dataSourceRef"),
}


def _fields(schema: JsonObject, prefix: str) -> list[tuple[str, JsonObject]]:
    """The fields below spec and status whose schema is ours, not Kubernetes'."""
    found: list[tuple[str, JsonObject]] = []
    properties = schema.get("properties")
    for name, field in (properties if isinstance(properties, dict) else {}).items():
        assert isinstance(field, dict)
        path = f"{prefix}.{name}"
        if path not in (".apiVersion", ".kind", ".metadata", ".spec", ".status"):
            found.append((path, field))
        if name in _FROM_KUBERNETES:
            continue
        found += _fields(field, path)
        for inner in (field.get("additionalProperties"), field.get("items")):
            if isinstance(inner, dict):
                found += _fields(inner, path)
    return found


def test_the_reference_describes_every_condition_and_every_environment_variable() -> None:
    assert set(generate_reference.CONDITIONS) == set(names.Condition)
    variables = {value for name, value in vars(names.Env).items() if name.isupper()} - {names.Env.PREFIX}
    assert set(generate_reference.VARIABLES) == variables


def test_each_file_is_counted_in_one_row_of_what_the_lines_are_for() -> None:
    found = size.rows()
    for part, root in (("operator", "operator"), ("trainer", "trainer-image"), ("tests", "tests")):
        assert sum(size.lines(row.files) for row in found[part]) == size.lines(size.files(f"{root}/*.py"))
    page = (ROOT / "docs" / "adr" / "0041-where-smaller-ends.md").read_text()
    named = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")[2] for line in page.splitlines() if " | " in line
    }
    assert {row.name: row.used_by for part in found.values() for row in part}.items() <= named.items()


def test_rounded_rows_sum_to_the_rounded_whole() -> None:
    assert size.hundreds([149, 149, 149, 60]) == [200, 100, 100, 100]
