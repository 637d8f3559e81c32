"""Samples of one seed after the other, and a table of what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import new_samples
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
        return next((name for name in ("raises", "faults", "answers", "load") if getattr(sample, name)), "objects")

    def __str__(self) -> str:
        return f"seed {self.seed} ({self.edge}, {self.sample.form} {self.sample.shape}): {self.verdict}"


def samples(seeds: Iterable[int]) -> Iterator[Judged]:
    """Of these seeds, as long as there are any."""
    for seed in seeds:
        sample = compose(seed, large=True)
        yield Judged(seed, sample, judge(sample))


def table(judged: Sequence[Judged]) -> str:
    """How often each verdict was given, by edge."""
    return new_samples.table([(one.edge, one.verdict.kind) for one in judged], KINDS, wide=12)
