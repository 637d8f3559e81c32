"""Runs buildah with a storage of its own in the cache, and everything in namespaces that leave no mount behind."""

import os
import shlex
import subprocess
from pathlib import Path

from testbed.cache import cache_root
from testbed.errors import Unavailable

# Processes and mounts of the command end with it.
CONTAINED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private")


class Buildah:
    """buildah as root, in chroots, without a daemon. `scratch` is a folder for temporary files."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def run(self, *arguments: str) -> str:
        """What a buildah command writes. Raises `Unavailable` where it fails, with its last words."""
        storage = [
            f"--root={cache_root() / 'buildah'}",
            f"--runroot={self.scratch / 'run'}",
            "--storage-driver=overlay",
        ]
        return contained("buildah", *storage, *arguments, scratch=self.scratch)


def contained(*command: str, scratch: Path) -> str:
    """What a command writes when run in namespaces of its own, with `scratch` for its temporary files."""
    return run(*CONTAINED, *command, BUILDAH_ISOLATION="chroot", TMPDIR=str(scratch))


def run(*command: str, **environment: str) -> str:
    """What a command writes. Raises `Unavailable` where it fails, with its last words."""
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no output"]
        raise Unavailable("\n".join([f"{shlex.join(command)} failed:", *lines[-15:]]))
    return done.stdout
