"""Writes kubeconfig files: one cluster, one user, certificates inside, so that the file may be moved."""

import base64
import os
import tempfile
from pathlib import Path

import yaml

from testbed.pki import KeyPair


def write(path: Path, *, server: str, authority: Path, identity: KeyPair, user: str) -> Path:
    """Write a kubeconfig for `user` at `path`, readable by its owner alone, and return `path`."""
    name = "dtj-testbed"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": _data(authority)}}],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _data(identity.certificate),
                    "client-key-data": _data(identity.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }
    # Another process may read it at this moment.
    descriptor, new = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        yaml.safe_dump(config, file, sort_keys=False)
    os.replace(new, path)
    return path


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
