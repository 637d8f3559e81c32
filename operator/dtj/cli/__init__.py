"""``dtj``, the command line: reads what a person wants, and shows what came of it. Decides nothing about jobs."""

from __future__ import annotations

from typing import Final

PROGRAM: Final = "dtj"
VARIABLE: Final = "_DTJ_COMPLETE"
"""The variable by which a shell asks the program for completions."""
