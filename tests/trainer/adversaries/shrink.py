"""The smallest sample that fails as another one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from trainer.adversaries.compose import AFTER, BEFORE, RETURNED
from trainer.adversaries.judge import Verdict, judge
from trainer.adversaries.sample import MIRRORED, SCRIPT, SESSION, TWO, Sample

_DRESS = ("weights", "kind", "optimizer", "compiled", "feed", "fit", "calls", "epochs", "examples", "batch", "resumed")
"""Fields that seldom matter: they are made simple together, and one by one where that is too much."""
_DEFAULT = {one.name: one.default for one in fields(Sample)}
RUNS = 40
"""Samples that are tried at most; each takes about 5 CPU seconds."""


def smallest(sample: Sample, verdict: Verdict) -> tuple[Sample, Verdict]:
    """A sample that no single change makes simpler without another verdict, and its verdict."""
    tried = {sample}
    while True:
        for one in _simpler(sample):
            if one in tried:
                continue
            if len(tried) > RUNS:
                return sample, verdict
            tried.add(one)
            found = judge(one)
            if found.kind == verdict.kind:
                sample, verdict = one, found
                break
        else:
            return sample, verdict


def _simpler(sample: Sample) -> Iterator[Sample]:
    yield replace(sample, **{name: _DEFAULT[name] for name in _DRESS})
    if sample.layers:
        yield replace(sample, layers=())
    if sample.strategy == TWO:
        yield replace(sample, strategy=MIRRORED)
    if sample.way == SESSION:
        yield replace(sample, way=SCRIPT)
    for name in ("layers", "own", "compiled", "fit", "calls"):
        values: tuple[Any, ...] = getattr(sample, name)
        for place in range(len(values)):
            yield replace(sample, **{name: values[:place] + values[place + 1 :]})
    for name in _DRESS:
        yield replace(sample, **{name: _DEFAULT[name]})
    yield replace(sample, data=Sample.data, target=Sample.target, loss=Sample.loss)
    yield replace(sample, loss=Sample.loss)
    for place, (method, body) in enumerate(sample.own):
        for text in (*filter(None, (*BEFORE, *AFTER)), *list(RETURNED)[1:]):
            if text in body:
                shorter = body.replace(text, "" if text in (*BEFORE, *AFTER) else next(iter(RETURNED)))
                yield replace(sample, own=(*sample.own[:place], (method, shorter), *sample.own[place + 1 :]))
