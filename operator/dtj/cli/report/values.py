"""The values of each metric in a table: the last, the lowest and the highest. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dtj.cli.report.curves import Curve, Point
from dtj.cli.report.measured import VALIDATION


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One metric; ``validation`` says that it is that of examples that were not trained on."""

    name: str
    validation: bool
    last: Point
    lowest: Point
    highest: Point


def value_rows(curves: Iterable[Curve]) -> tuple[ValueRow, ...]:
    """A row for each metric, and one for the same of held-out examples."""
    rows: list[ValueRow] = []
    for curve in curves:
        plain = curve.name.removeprefix(VALIDATION)
        for points, validation in ((curve.points, plain != curve.name), (curve.validation, True)):
            if points:
                lowest = min(points, key=lambda point: point.value)
                highest = max(points, key=lambda point: point.value)
                rows.append(ValueRow(plain, validation, points[-1], lowest, highest))
    return tuple(rows)
