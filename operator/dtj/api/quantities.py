"""Kubernetes quantities, as far as sums and products of them are needed: ``500m``, ``2``, ``1.5Gi``, ``100k``.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

_PATTERN: Final = re.compile(
    r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+)|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LONGEST_EXPONENT: Final = 30


def parse(text: object) -> Fraction | None:
    """The number that a quantity stands for; None where it is none."""
    match = _PATTERN.fullmatch(str(text))
    if match is None:
        return None
    number, exponent, unit = Fraction(match[1] or 0), int(match[2] or 0), match[3] or ""
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
