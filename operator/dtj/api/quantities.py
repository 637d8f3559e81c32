"""Kubernetes quantities, for sums and products of them: ``500m``, ``2``, ``1.5Gi``, ``100k``.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

PATTERN: Final = "([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
"""A quantity without a sign, as RE2 and Python read it. Source: apimachinery, pkg/api/resource/quantity.go, the grammar
that documents type Quantity. (Its parser takes a unit without a number, too, as 0; that is a mistake in a manifest.)

An exponent has two digits at most: Kubernetes cuts off what is beyond 2^63, and an API server that reads 1e999999999
computes for minutes."""

FIELD_PATTERN: Final = f"^ *[+]?({PATTERN}) *$"
"""A quantity as a field of a pod may hold it: not negative, and with spaces around it, which Kubernetes strips."""

MAX_LENGTH: Final = 64
"""Most characters of a quantity that is read. Python refuses to compute with numbers of 4,300 digits."""

EXAMPLES: Final = "500m, 8Gi or 1e3"

_PARTS: Final = re.compile(r" *[+]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]))? *")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LONGEST_EXPONENT: Final = 99


def parse(text: object) -> Fraction | None:
    """The number that a quantity stands for. None if the text is no quantity, or if it is negative."""
    given = str(text)
    match = _PARTS.fullmatch(given) if len(given) <= MAX_LENGTH else None
    if match is None:
        return None
    number, exponent, unit = Fraction(match[1]), int(match[2] or 0), match[3] or ""
    if abs(exponent) > _LONGEST_EXPONENT:
        return None
    return number * Fraction(10) ** (exponent + _DECIMAL.get(unit, 0)) * Fraction(1024) ** _BINARY.get(unit, 0)


def shown(number: Fraction) -> str:
    """A quantity of this size: whole units, or thousandths rounded up."""
    if number.denominator == 1:
        return str(number.numerator)
    return f"{math.ceil(number * 1000)}m"


def as_memory(number: Fraction) -> str:
    """A size of memory: whole mebibytes, rounded up."""
    return f"{math.ceil(number / 2**20)}Mi"
