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
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("+1E-3", Fraction(1, 1000)),
        (" 2 ", Fraction(2)),
        (0.5, Fraction(1, 2)),
        (3, Fraction(3)),
    ],
)
def test_a_quantity_is_read(text: object, number: Fraction) -> None:
    assert quantities.parse(text) == number


@pytest.mark.parametrize("text", ["", "much", "1 Gi", "-1", "1GB", "1e999999", "9" * 5000, None])
def test_what_is_none_is_none(text: object) -> None:
    assert quantities.parse(text) is None


@pytest.mark.parametrize("text", ["8", "500m", "1.5Gi", ".5Gi", "5.", "+5", "1e3", "1E-3", "12E", "0", " 8Gi ", "7n"])
def test_what_kubernetes_reads_as_a_quantity_matches_the_schemas_pattern(text: str) -> None:
    assert matches(quantities.FIELD_PATTERN, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8 gigs",
        "8 Gi",
        "8GB",
        "1K",
        "1e",
        "1e3.5",
        "0x8",
        "8,5",
        "--8",
        "1.5.5",
        "Gi",
        ".",
        "8Gi\n",
        "8ki",
        "-5",
        "1e100",
    ],
)
def test_what_is_no_quantity_does_not_match(text: str) -> None:
    assert not matches(quantities.FIELD_PATTERN, text)


def test_a_sum_is_written_in_whole_units_or_thousandths() -> None:
    assert quantities.shown(Fraction(3)) == "3"
    assert quantities.shown(Fraction(3, 2)) == "1500m"


def test_memory_is_written_in_whole_mebibytes_rounded_up() -> None:
    assert quantities.as_memory(Fraction(2**30 + 1)) == "1025Mi"
