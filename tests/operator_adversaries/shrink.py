"""The smallest sample that fails as another one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from operator_adversaries.extremes import Many, Row
from operator_adversaries.judge import Verdict, judge
from operator_adversaries.sample import Sample

_LISTS = ("raises", "acts", "answers", "faults")


def smallest(sample: Sample, verdict: Verdict) -> tuple[Sample, Verdict]:
    """Leave out and make simple what the same kind of verdict does not need."""
    again = True
    while again:
        again = False
        for other in _simpler(sample):
            found = judge(other)
            if found.kind == verdict.kind:
                sample, verdict, again = other, found, True
                break
    return sample, verdict


def _simpler(sample: Sample) -> Iterator[Sample]:
    plain = Sample()
    other: dict[str, Any]
    for name in ("shape", "form", "policies"):
        if getattr(sample, name) != getattr(plain, name):
            other = {name: getattr(plain, name), **({"shape": plain.shape} if name == "form" else {})}
            yield replace(sample, **other)
    if (load := sample.load) is not None and load.pods > 24:
        yield replace(sample, load=replace(load, pods=load.pods // 2))
    for name in _LISTS:
        given = getattr(sample, name)
        for place in range(len(given)):
            other = {name: (*given[:place], *given[place + 1 :])}
            yield replace(sample, **other)
    for name in _LISTS:
        given = getattr(sample, name)
        for place, each in enumerate(given):
            for part in _simpler_parts(each):
                other = {name: (*given[:place], part, *given[place + 1 :])}
                yield replace(sample, **other)


def _simpler_parts(part: Any) -> Iterator[Any]:
    """An act, answer or fault with less in it."""
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name == "edits":
            for place in range(len(value)):
                yield replace(part, edits=(*value[:place], *value[place + 1 :]))
            for place, (path, edited) in enumerate(value):
                for other in _simpler_values(edited):
                    yield replace(part, edits=(*value[:place], (path, other), *value[place + 1 :]))
        elif field.name in ("body", "message"):
            for other in _simpler_values(value):
                yield replace(part, **{field.name: other})


def _simpler_values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key in value:
            yield {other: each for other, each in value.items() if other != key}
        for key, each in value.items():
            for simple in _simpler_values(each):
                yield {**value, key: simple}
    elif isinstance(value, Many | Row) and value.times > 1:
        yield replace(value, times=value.times // 2)
