"""An older state of this project, from its history, to upgrade from and to roll back to. There is no release yet.

It is older than `status.readyAttempt` and `runPolicy.onNaN`, so its CRD, operator and chart differ from today's.
Choose a newer commit when an upgrade from this one is no longer promised (docs/compatibility.md).
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from testbed import Unavailable
from testbed.cache import cache_root, locked
from testbed.images import ROOT, Recipe

COMMIT = "b5a7aecf5f68b96adc37257f5505ef78f9434d6f"
NEWER_FIELD = "readyAttempt"
"""A field of the status that the older state does not know."""


def checkout() -> Path:
    """The older state as a folder of the cache. Raises Unavailable if the history does not have it."""
    folder = cache_root() / f"older-{COMMIT[:12]}"
    with locked(cache_root() / "older.lock"):
        if not folder.exists():
            command = ["git", "-C", str(ROOT), "archive", COMMIT]
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode != 0:
                words = done.stderr.decode().strip()
                raise Unavailable(f"no history to upgrade from (git fetch --unshallow gets it): {words}")
            with tempfile.TemporaryDirectory(dir=cache_root()) as scratch:
                (Path(scratch) / "tree").mkdir()
                subprocess.run(["tar", "-x", "-C", Path(scratch) / "tree"], input=done.stdout, check=True)
                (Path(scratch) / "tree").rename(folder)
    return folder


def chart() -> Path:
    """The chart of the older state."""
    return checkout() / "charts" / "dtj"


def operator() -> Recipe:
    """What the operator's image of the older state is built from."""
    folder = checkout()
    return Recipe(name="older-operator", dockerfile=folder / "Dockerfile", context=folder)
