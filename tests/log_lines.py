"""The log lines of programs in a test's own process, as the format ``plain`` of the trainer shows them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dtj_launch.logs import PlainFormatter


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(PlainFormatter("dtj_trainer"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@contextmanager
def log_lines(logger: str = "dtj_trainer", level: int = logging.INFO) -> Iterator[list[str]]:
    """The lines that ``logger`` and those below it log meanwhile."""
    handler, tree = _Lines(), logging.getLogger(logger)
    before = tree.level
    tree.addHandler(handler)
    tree.setLevel(level)
    try:
        yield handler.lines
    finally:
        tree.removeHandler(handler)
        tree.setLevel(before)
