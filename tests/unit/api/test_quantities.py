"""Kubernetes quantities: read, added up, written."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dtj.api import quantities
from dtj.api.names import matches


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2", Fraction(2)),
        ("500m", Fraction(1, 2)),
        ("1.5Gi", Fraction(3 * 2**29)),
        ("100k", Fraction(100_000)),
        ("1e3", Fraction(1000)),
        ("12E", Fraction(12 * 10**18)),
        ("1Ki", Fraction(1024)),
        ("0", Fraction(0)),
        (".5", Fraction(1, 2)),
        (".5Gi", Fraction(2**29)),
        ("7n", Fraction(7, 10**9)),
        ("5.", Fraction(5)),
        ("+1E-3", Fraction(1, 1000)),
        (" 2 ", Fraction(2)),
        (0.5, Fraction(1, 2)),
        (3, Fraction(3)),
    ],
)
def test_a_quantity_is_read_and_matches_the_schemas_pattern(text: object, number: Fraction) -> None:
    assert quantities.parse(text) == number
    assert matches(quantities.FIELD_PATTERN, str(text))


@pytest.mark.parametrize("text", ["", "much", "1 Gi", "-1", "1GB", "1e999999", "9" * 5000, None])
def test_what_is_none_is_none(text: object) -> None:
    assert quantities.parse(text) is None


@pytest.mark.parametrize("text", ["", "8 Gi", "8,5", "1.5.5", "Gi", ".", "8Gi\n", "-5", "1e100"])
def test_what_is_no_quantity_does_not_match(text: str) -> None:
    """More of them are in tests/api, where a server refuses them too."""
    assert not matches(quantities.FIELD_PATTERN, text)


def test_a_sum_is_written_in_whole_units_or_thousandths() -> None:
    assert quantities.shown(Fraction(3)) == "3"
    assert quantities.shown(Fraction(3, 2)) == "1500m"


def test_memory_is_written_in_whole_mebibytes_rounded_up() -> None:
    assert quantities.as_memory(Fraction(2**30 + 1)) == "1025Mi"
