"""Samples of one seed after the other, and a table of what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import new_samples
from trainer.adversaries.compose import compose, compose_central, compose_pipeline, compose_servers
from trainer.adversaries.judge import CHAOTIC, CRASH, EQUAL, HANG, INVALID, REFUSED, WRONG, Verdict, judge
from trainer.adversaries.sample import Sample

_OTHERS = {0: compose_pipeline, 5: compose_central, 7: compose_servers}
"""By the last digit of a seed, what it is composed for, other than any strategy of replicas."""
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


def samples(seeds: Iterable[int]) -> Iterator[Judged]:
    """Of these seeds, as long as there are any."""
    for seed in seeds:
        sample = _OTHERS.get(seed % 10, compose)(seed)
        yield Judged(seed, sample, judge(sample))


def table(judged: Sequence[Judged]) -> str:
    """How often each verdict was given, by way."""
    return new_samples.table([(one.way, one.verdict.kind) for one in judged], KINDS, wide=32)
