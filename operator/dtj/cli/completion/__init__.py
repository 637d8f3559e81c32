"""``dtj completion``, and ``kubectl_complete-dtj``, which kubectl runs to complete ``kubectl dtj``."""

from __future__ import annotations

import sys
from typing import Final

PROGRAM: Final = "dtj"
VARIABLE: Final = "_DTJ_COMPLETE"
"""The variable by which a shell asks the program for completions."""


def answer_kubectl() -> None:
    """The entry point ``kubectl_complete-dtj``."""
    from dtj.cli.common.terminal import say_lines
    from dtj.cli.completion.command import kubectl_lines
    from dtj.cli.main import cli  # which imports this module

    for line in kubectl_lines(cli, sys.argv[1:]):
        say_lines(line)
