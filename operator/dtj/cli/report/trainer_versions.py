"""Which versions a trainer ran with, out of the first lines of its log. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from dtj.cli.report.evidence import Setting
from dtj.cli.report.measured import message_of

HEAD_BYTES: Final = 2**14
"""How much of the log is read: the trainer writes this line among its first."""

_LINE: Final = re.compile(r"versions: (\S+ \S+(?:, \S+ \S+)*)")


def trainer_versions(head: str) -> Iterator[Setting]:
    """The versions in a log whose lines have times; nothing if another program wrote it."""
    for line in head.splitlines():
        found = _LINE.fullmatch(message_of(line.partition(" ")[2]))
        if found is not None:
            yield from (Setting("Versions", *pair.split(" ", 1)) for pair in found[1].split(", "))
            return
