"""Kubeconfigs of every shape that kubectl takes are taken; of others one line says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dtj.kube.config import ConfigError, ConnectionSource

pytestmark = pytest.mark.unit

CLUSTERS = [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]
USERS = [{"name": "u", "user": {"token": "t"}}]
CONTEXTS = [{"name": "foo", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}]


def source(folder: Path, context: str | None = "foo", **fields: Any) -> ConnectionSource:
    whole = {"apiVersion": "v1", "kind": "Config", "clusters": CLUSTERS, "users": USERS, "contexts": CONTEXTS, **fields}
    file = folder / "config"
    file.write_text(json.dumps({key: value for key, value in whole.items() if value != "left out"}))
    return ConnectionSource(kubeconfig=str(file), context=context)


@pytest.mark.parametrize(
    "fields",
    [
        {"current-context": "foo"},
        {},
        {"current-context": "deleted"},
        {"users": None},
        {"users": "left out"},
        {"contexts": [{"name": "foo", "context": {"cluster": "c", "namespace": "team-a"}}]},
        {"contexts": [{"name": "foo", "context": {"cluster": "c", "user": "gone", "namespace": "team-a"}}]},
    ],
    ids=["whole", "no current context", "stale current context", "users null", "no users", "no user", "user is gone"],
)
async def test_a_context_that_is_named_is_used_whatever_else_the_file_lacks(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    given = source(tmp_path, **fields)
    assert (await given.load()).host == "https://127.0.0.1:1"
    assert given.namespace() == "team-a"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"contexts": []}, 'there is no context "foo": it has none'),
        ({"contexts": None}, 'there is no context "foo": it has none'),
        ({"clusters": []}, "cannot be used|Expected object with name c"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://a", "certificate-authority-data": "bm9uZQ=="}}]},
            "cannot be used",
        ),
        ({"users": [{"name": "u", "user": "token"}]}, "cannot be used"),
    ],
    ids=["no contexts", "contexts null", "no clusters", "a certificate that is none", "a user that is a text"],
)
async def test_one_that_cannot_be_used_is_one_line(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        await source(tmp_path, **fields).load()
    assert "\n" not in str(raised.value)
