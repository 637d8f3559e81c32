"""The blocks of code in the documents: where they stand, what they hold, and what they say they need."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

_NEEDS: Final = re.compile(r"<!-- needs: (.+) -->")
_FENCE: Final = re.compile(r"^(\s*)```(\w*)$")
_INDENTED: Final = "    "


@dataclass(frozen=True, slots=True)
class Block:
    """One block. ``needs`` is what its marker names: ``<!-- needs: cluster, docker -->`` in the line before it."""

    file: str
    line: int
    language: str
    text: str
    needs: frozenset[str]

    @property
    def title(self) -> str:
        return f"{self.file}:{self.line}:{self.language or 'plain'}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command: all lines of a ``bash`` block, those after ``$`` of a ``console`` block."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        split = (shlex.split(line, comments=True) for line in lines)
        return [words for words in split if words]


def documents() -> list[Path]:
    """The documents that people read, generated ones among them."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(file: Path) -> Iterator[Block]:
    """All blocks of a document, fenced or indented."""
    lines = file.read_text().splitlines()
    name = str(file.relative_to(ROOT))
    place = 0
    while place < len(lines):
        fence = _FENCE.match(lines[place])
        if fence is not None:
            end = next(i for i in range(place + 1, len(lines)) if lines[i] == f"{fence[1]}```")
            text = "\n".join(line.removeprefix(fence[1]) for line in lines[place + 1 : end])
            yield Block(name, place + 1, fence[2], text + "\n", _needs(lines, place))
            place = end + 1
        elif lines[place].startswith(_INDENTED) and (place == 0 or not lines[place - 1].strip()):
            end = place
            while end < len(lines) and (lines[end].startswith(_INDENTED) or not lines[end].strip()):
                end += 1
            text = "\n".join(line.removeprefix(_INDENTED) for line in lines[place:end])
            yield Block(name, place + 1, "indented", text.rstrip() + "\n", _needs(lines, place))
            place = end
        else:
            place += 1


def _needs(lines: list[str], place: int) -> frozenset[str]:
    above = lines[place - 1] if place else ""
    marked = _NEEDS.fullmatch(above.strip())
    return frozenset(word.strip() for word in marked[1].split(",")) if marked is not None else frozenset()
