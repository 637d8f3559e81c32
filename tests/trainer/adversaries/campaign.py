"""Samples of one seed after the other, and a table of what came of them."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer.adversaries.compose import compose
from trainer.adversaries.judge import CHAOTIC, CRASH, EQUAL, HANG, INVALID, REFUSED, WRONG, Verdict, judge
from trainer.adversaries.sample import Sample

KINDS = (EQUAL, REFUSED, WRONG, CRASH, HANG, CHAOTIC, INVALID)


@dataclass(frozen=True)
class Judged:
    """A seed, its sample, and what came of it."""

    seed: int
    sample: Sample
    verdict: Verdict

    @property
    def way(self) -> str:
        """A row of the table."""
        return f"{self.sample.way}, {self.sample.strategy}{', resumed' if self.sample.resumed else ''}"

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.way}): {self.verdict}"


def samples(first: int, *, seconds: float) -> Iterator[Judged]:
    """Of this seed and the next ones, until the time is over."""
    end = time.monotonic() + seconds
    for seed in itertools.count(first):
        if time.monotonic() > end:
            return
        sample = compose(seed)
        yield Judged(seed, sample, judge(sample))


def table(judged: Sequence[Judged]) -> str:
    """How often each verdict was given, by way."""
    counts = Counter((one.way, one.verdict.kind) for one in judged)
    rows = [["", *KINDS, "all"]]
    for way in (*sorted({one.way for one in judged}), "all"):
        of_way = [sum(n for (of, kind), n in counts.items() if kind == each and way in (of, "all")) for each in KINDS]
        rows.append([way, *map(str, of_way), str(sum(of_way))])
    return "\n".join(
        "".join(f"{cell:<32}" if not place else f"{cell:>9}" for place, cell in enumerate(row)) for row in rows
    )
