"""Files that name an API server."""

from __future__ import annotations

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
