"""What tests that compose samples at random have in common: seeds that nobody has seen, and a table of what came."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence


def first_seed() -> int:
    """`DTJ_ADVERSARY_SEED`, else one that is drawn by chance."""
    return int(os.environ.get("DTJ_ADVERSARY_SEED") or secrets.randbelow(10**9))


def seeds(first: int, *, share: float = 1.0) -> Iterator[int]:
    """This seed and the next ones, for a share of `DTJ_ADVERSARY_SECONDS`, which is 600 by default."""
    end = time.monotonic() + share * float(os.environ.get("DTJ_ADVERSARY_SECONDS", "600"))
    for seed in itertools.count(first):
        if time.monotonic() > end:
            return
        yield seed


def table(found: Iterable[tuple[str, str]], kinds: Sequence[str], *, wide: int) -> str:
    """How often each verdict was given.

    Args:
        found: the row and the verdict of each sample.
        kinds: of verdicts, in the order of the columns.
        wide: characters of the names of rows.
    """
    counts = Counter(found)
    rows = [["", *kinds, "all"]]
    for name in (*sorted({row for row, _ in counts}), "all"):
        of_row = [
            sum(n for (row, kind), n in counts.items() if kind == each and name in (row, "all")) for each in kinds
        ]
        rows.append([name, *map(str, of_row), str(sum(of_row))])
    column = 2 + max(map(len, kinds))
    return "\n".join(f"{name:<{wide}}" + "".join(f"{cell:>{column}}" for cell in cells) for name, *cells in rows)
