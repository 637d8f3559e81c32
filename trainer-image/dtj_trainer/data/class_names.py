"""Names of classes: their order, and those that are one name for a person."""

import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation

from dtj_trainer.errors import UsageError


def in_order(values: Iterable[str]) -> tuple[str, ...]:
    """Distinct values: by their size where all are finite numbers, else by the alphabet."""
    distinct = sorted(set(values))
    sizes = {value: number for value in distinct if (number := _number(value)) is not None and number.is_finite()}
    return tuple(sorted(distinct, key=sizes.__getitem__) if len(sizes) == len(distinct) else distinct)


def check_alike(labels: Mapping[str, str], where: str) -> None:
    """That no two labels look alike: they are the same, written in two ways.

    Args:
        labels: each with a file that has it.

    Raises:
        UsageError: two do.
    """
    seen: dict[str | Decimal, str] = {}
    distinct = sorted(labels)
    numbers = {value: number for value in distinct if (number := _number(value)) is not None}
    sizes = {value: number for value, number in numbers.items() if number.is_finite()}
    all_numbers = len(numbers) == len(distinct)
    for value in distinct:
        same = seen.setdefault(sizes[value] if all_numbers and value in sizes else _as_seen(value), value)
        if same != value:
            both = " and ".join(f"{one!a} ({labels[one]})" for one in (same, value))
            raise UsageError(f"--data-dir={where}: labels {both} are both there; write them in one way")


def _as_seen(text: str) -> str:
    """Without what nobody sees: letters of two parts and of one, spaces of other kinds, and marks."""
    letters = (one for one in unicodedata.normalize("NFC", text) if unicodedata.category(one) != "Cf")
    return " ".join("".join(letters).split())


def _number(text: str) -> Decimal | None:
    """Exact: float would take two long numbers for one."""
    with suppress(InvalidOperation):
        return Decimal(text)
    return None
