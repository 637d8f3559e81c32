"""Manifests as Python users have them, and what is reported of those that cannot be submitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from builders import manifest
from dtj.api.json import JsonObject
from dtj.client import InvalidManifest
from dtj.client.checks import Source, manifests_of, placed
from support.local_runs import write


def problems(source: Source) -> tuple[str, ...]:
    with pytest.raises(InvalidManifest) as refused:
        manifests_of(source)
    return refused.value.problems


def in_namespace(name: str, namespace: str) -> JsonObject:
    return {**manifest(name), "metadata": {"name": name, "namespace": namespace}}


def test_a_path_a_name_of_a_file_yaml_json_and_a_mapping_are_the_same_manifest(tmp_path: Path) -> None:
    body = manifest("a")
    file = write(tmp_path, body)
    sources: tuple[Source, ...] = (file, str(file), yaml.safe_dump(body), json.dumps(body), body)
    assert [found.body for source in sources for found in manifests_of(source)] == [body] * len(sources)


def test_what_the_caller_does_to_the_mapping_later_is_not_our_business() -> None:
    body = manifest("a")
    (found,) = manifests_of(body)
    body["spec"] = None
    assert found.body == manifest("a")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("none.yaml", "none.yaml: file not found"),
        ("a: [\n", "the manifest: line 2, column 1: not YAML: "),
        ("- a\n", "the manifest: document 1: not a manifest: it is a list"),
        ("\n", "the manifest: empty: there is no document in it"),
        ({"spec": {"at": Path("x")}}, "the manifest: not JSON: "),
        ({"spec": {"at": float("nan")}}, "the manifest: not JSON: "),
        ({}, 'the manifest: apiVersion: Required value: write "training.dtj.dev/v1alpha1"'),
    ],
)
def test_what_is_no_manifest_is_one_line_that_says_why(source: Source, words: str) -> None:
    assert problems(source)[0].startswith(words)
    assert all("\n" not in problem for problem in problems(source))


def test_profiles_that_are_not_shipped_are_left_to_the_clusters_operator() -> None:
    (found,) = manifests_of(manifest(accelerator={"profile": "our-own"}))
    assert found.spec.accelerator is not None


def test_a_job_goes_to_its_own_namespace_else_to_the_one_asked_for_else_to_the_contexts() -> None:
    own, none = manifests_of(in_namespace("a", "theirs")) + manifests_of(manifest("b"))
    assert [where for _, where in placed((own, none), namespace="default", asked=None)] == ["theirs", "default"]
    assert [where for _, where in placed((own, none), namespace="theirs", asked="theirs")] == ["theirs", "theirs"]
