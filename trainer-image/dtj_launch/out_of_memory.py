"""Whether the kernel killed a process of this container because memory ran out: only the cgroup's counter shows it."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def out_of_memory_kills(cgroup: Path = _CGROUP, own: Path = _OWN) -> int | None:
    """How often that happened in this container so far; None where the kernel does not say."""
    for folder in _folders(cgroup, own):
        for file in ("memory.events", "memory.oom_control"):  # of cgroups version 2, and of version 1
            for line in _lines(folder / file):
                name, _, count = line.partition(" ")
                if name == "oom_kill" and count.strip().isdecimal():
                    return int(count)
    return None


def _folders(cgroup: Path, own: Path) -> list[Path]:
    """Where the counts may be: a container sees its own group as the root, mostly."""
    folders = []
    for line in _lines(own):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers in ("", "memory"):
            folders.append(Path(os.path.normpath(f"{cgroup / controllers}/{path}")))
    return [*folders, cgroup, cgroup / "memory"]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
