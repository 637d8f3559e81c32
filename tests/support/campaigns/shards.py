"""Which part of a campaign's plans is tried: one shard in a run of CI, all of them on demand.

``DTJ_SHARD`` is a number from 0 or ``all``. Without it the commit chooses, so that a run can be repeated and every
shard has its turn.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

P = TypeVar("P")

SHARDS: Final = 16
VARIABLE: Final = "DTJ_SHARD"


def chosen(environment: Mapping[str, str] = os.environ, *, directory: Path = Path(__file__).parent) -> list[int]:
    """The shards to be tried. Raises ValueError where the variable names none."""
    given = environment.get(VARIABLE, "")
    if given == "all":
        return list(range(SHARDS))
    if not given:
        return [int(_commit(directory)[:8], 16) % SHARDS]
    if not given.isdecimal() or int(given) >= SHARDS:
        raise ValueError(f"{VARIABLE}={given}: use all, or a number from 0 to {SHARDS - 1}")
    return [int(given)]


def part(plans: Iterable[P], shard: int, *, shards: int = SHARDS) -> list[P]:
    """The plans of one of this many shards. Which one a plan is in depends on its text alone."""
    return [plan for plan in plans if zlib.crc32(str(plan).encode()) % shards == shard]


def _commit(directory: Path) -> str:
    """The commit that is checked out; zeros where there is none, as in an unpacked archive."""
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=directory, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "0" * 40
    return head.stdout.strip()
