"""Which namespaces one of several operators serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Keep: TypeAlias = Callable[[str], bool]
"""Says of a namespace whether its jobs are ours."""


def everywhere(namespace: str) -> bool:
    """The jobs of all namespaces are ours."""
    return True
