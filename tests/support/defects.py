"""Errors that operators of this process log."""

from __future__ import annotations

import logging


class Defects(logging.Handler):
    """Errors that operators of this process log: neither what they are shown nor being killed is a reason for any."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def __enter__(self) -> Defects:
        logging.getLogger("dtj").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("dtj").removeHandler(self)
