"""Samples of one seed after the other, and a table of what came of them."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from operator_adversaries.compose import compose
from operator_adversaries.judge import KINDS, Verdict, judge
from operator_adversaries.sample import Sample


@dataclass(frozen=True)
class Judged:
    """A seed, its sample, and what came of it."""

    seed: int
    sample: Sample
    verdict: Verdict

    @property
    def edge(self) -> str:
        """A row of the table."""
        sample = self.sample
        return next((name for name in ("raises", "faults", "answers") if getattr(sample, name)), "objects")

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.edge}, {self.sample.form} {self.sample.shape}): {self.verdict}"


def samples(first: int, *, seconds: float) -> Iterator[Judged]:
    """Of this seed and the next ones, until the time is over."""
    end = time.monotonic() + seconds
    for seed in itertools.count(first):
        if time.monotonic() > end:
            return
        sample = compose(seed)
        yield Judged(seed, sample, judge(sample))


def table(judged: Sequence[Judged]) -> str:
    """How often each verdict was given, by edge."""
    counts = Counter((one.edge, one.verdict.kind) for one in judged)
    rows = [["", *KINDS, "all"]]
    for edge in (*sorted({one.edge for one in judged}), "all"):
        found = [sum(n for (of, kind), n in counts.items() if kind == each and edge in (of, "all")) for each in KINDS]
        rows.append([edge, *map(str, found), str(sum(found))])
    return "\n".join(
        "".join(f"{cell:<12}" if not place else f"{cell:>12}" for place, cell in enumerate(row)) for row in rows
    )
