"""Files that name an API server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml


def kubeconfig(folder: Path, server: str, **credentials: str) -> Path:
    """One whose current context is that server."""
    file = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": credentials}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


def copied(
    original: Path, folder: Path, *, user: Mapping[str, str] = {}, server: str = "", namespace: str = ""
) -> Path:
    """A copy of a file, with other credentials, another server or another namespace."""
    content = yaml.safe_load(original.read_text())
    changes = {"users": dict(user), "clusters": {"server": server}, "contexts": {"namespace": namespace}}
    for section, change in changes.items():
        for each in content[section]:
            inner = each[section.removesuffix("s")]
            if section == "users" and change:
                inner.clear()
            inner.update({key: value for key, value in change.items() if value})
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file
