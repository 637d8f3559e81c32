"""What the training measured, out of what the leader printed. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import text
from dtj.cli.report.evidence import Log, Scalar

SPEED: Final = "examples/s"
VALIDATION: Final = "val_"
"""What the name of a metric of held-out examples begins with, as in Keras."""

AT_THE_END: Final = "held_out/"
"""The same of the evaluation after the last step."""

_SIZES: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_STEP: Final = re.compile(r"(?:validation: )?step (\d+)(?:/\d+(?: \(\d+%\))?)?(?:  (.+))?")
_END: Final = re.compile(r"held-out: (.+)")
_PAIR: Final = re.compile(r"([^\s/]+) (-?[\d.]+(?:e[-+]?\d+)?)")
_SPEED: Final = re.compile(r"([\d.]+)([kMG]?) examples/s")
_NO_METRICS: Final = ("epoch", "ETA")


def from_logs(logs: Iterable[Log]) -> Iterator[Scalar]:
    """What the leader printed; its earlier incarnations printed theirs before."""
    series = [list(_from_log(log)) for log in logs]
    for points in sorted(filter(None, series), key=_beginning):
        yield from points


def _beginning(points: list[Scalar]) -> float:
    moment = points[0].at
    return moment.timestamp() if moment is not None else 0.0


def _from_log(log: Log) -> Iterator[Scalar]:
    step = 0
    for line in log.text.splitlines():
        at = None
        if log.stamped:
            stamp, _, line = line.partition(" ")
            at = parse_time(stamp)
        words = message_of(line).strip()
        found = _STEP.fullmatch(words)
        if found is not None:
            step = int(found[1])
            yield from _values(found[2] or "", step, at)
        elif (end := _END.fullmatch(words)) is not None:
            for each in _values(end[1], step, at):
                yield Scalar(f"{AT_THE_END}{each.name}", each.step, each.value, each.at)


def message_of(line: str) -> str:
    """What a line says: itself, or the message of a trainer that logs JSON (DTJ_LOG_FORMAT=json)."""
    if not line.startswith("{"):
        return line
    try:
        return text(json.loads(line).get("message"))
    except (ValueError, RecursionError):
        return line


def _values(words: str, step: int, at: datetime | None) -> Iterator[Scalar]:
    for part in words.split("  "):
        if (speed := _SPEED.fullmatch(part)) is not None:
            yield Scalar(SPEED, step, _number(speed[1]) * _SIZES[speed[2]], at)
        elif (pair := _PAIR.fullmatch(part)) is not None and pair[1] not in _NO_METRICS:
            yield Scalar(pair[1], step, _number(pair[2]), at)


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")
