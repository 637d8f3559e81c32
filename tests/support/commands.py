"""A command of ``dtj`` that runs in this process: the fixture ``dtj`` of tests/unit/cli."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line with which it refused its input."""
        assert (self.code, self.out, self.err.count("\n")) == (2, "", 1), self
        return self.err


class Dtj(Protocol):
    """Runs a command with these arguments."""

    def __call__(self, *arguments: object) -> Done: ...
