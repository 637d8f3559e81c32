"""Which part of a campaign's plans is tried: always the same shard, or with ``DTJ_SHARD=all`` all of them.

``DTJ_SHARD`` is a number from 0 or ``all``. It is 0 where it is not set: the same plans on each commit and machine.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

P = TypeVar("P")

SHARDS: Final = 16
VARIABLE: Final = "DTJ_SHARD"


def chosen(environment: Mapping[str, str] = os.environ) -> list[int]:
    """The shards to be tried. Raises ValueError where the variable names none."""
    given = environment.get(VARIABLE) or "0"
    if given == "all":
        return list(range(SHARDS))
    if not given.isdecimal() or int(given) >= SHARDS:
        raise ValueError(f"{VARIABLE}={given}: use all, or a number from 0 to {SHARDS - 1}")
    return [int(given)]


def part(plans: Iterable[P], shard: int, *, shards: int = SHARDS) -> list[P]:
    """The plans of one of this many shards. Which one a plan is in depends on its text alone."""
    return [plan for plan in plans if zlib.crc32(str(plan).encode()) % shards == shard]
