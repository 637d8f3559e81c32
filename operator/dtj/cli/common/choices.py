"""Options whose values are those of an enumeration, spelled as in manifests."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import click

E = TypeVar("E", bound=StrEnum)


class OneOf(click.Choice[E]):
    """A choice among an enumeration's values; :class:`click.Choice` alone would take its members' names."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)
