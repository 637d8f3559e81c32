"""Values of options that are refused in our own words: whole numbers, and names of namespaces."""

from __future__ import annotations

from typing import Any

import click


class WholeNumber(click.IntRange):
    """A range of whole numbers. Click calls any other text "not a valid integer range"."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Fails for other texts and for numbers out of range."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f'"{value}" is not a whole number {self._limits()}', param, ctx)

    def _limits(self) -> str:
        return f"of at least {self.min}" if self.max is None else f"from {self.min} to {self.max}"


class NamespaceName(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """The name of a namespace. Any other text would become a part of a host name or of the path of a request."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, unchanged."""
        from dtj.api.metadata import namespace_problem

        if problem := namespace_problem(value):
            self.fail(problem, param, ctx)
        return value
