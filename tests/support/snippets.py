"""The blocks of code in the documents: where they stand, what they hold, what they say they need, and who tries them.

A block without a marker is tried as it stands: its commands by tests/local/test_documents.py or, those in ``BY_CI``, by
CI itself; its Python by the test in ``TRIES_PYTHON``. tests/unit/test_snippets.py keeps it so.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

BY_CI: Final = {
    "make setup": ("tests/levels.toml", 'needs = ["trainer"]'),
    "make demo": ("Makefile", "$(OPERATOR)/dtj run examples/digits.yaml"),
    "make test": (".ci/run", "make test"),
    "make lint": ("tests/levels.toml", '"lint"]'),
    "make docs": (".github/workflows/docs.yml", "make docs"),
}
"""Commands that CI itself runs, or what they consist of: the file and the words in it that show it. What the demo runs
after its setup, the tests of the quickstart run, too."""

TRIES_PYTHON: Final = {
    "CONTRIBUTING.md": "tests/unit/test_first_test_page.py",
    "docs/bring-your-own.md": "tests/local/test_documents.py",
    "docs/client.md": "tests/api/test_client_docs.py",
    "docs/export.md": "tests/trainer/test_export.py",
    "docs/scripts.md": "tests/local/test_documents.py",
}
"""The test that runs all blocks of Python of a document."""

RUN_HERE: Final = frozenset({"dtj", "python", "cd", "export", "find", "sort", "xargs", "sha256sum"})
"""Programs that the tests of the level *local* have; ``dtj`` where it asks no cluster."""

_NEEDS: Final = re.compile(r"<!-- needs: (.+) -->")
_FENCE: Final = re.compile(r"^(\s*)```(\w*)$")
_ANY_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_INDENTED: Final = "    "
_COMMENT: Final = re.compile(r"(^|\s)# .*$")
_JOINTS: Final = frozenset({"&&", "|", ";"})
_ASSIGNMENT: Final = re.compile(r"[A-Z_]+=")


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
    def is_shell(self) -> bool:
        return self.language in ("bash", "console")

    @property
    def lines(self) -> list[str]:
        """What is typed, without comments: all lines of a ``bash`` block, those after ``$`` of a ``console`` block."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        bare = (_COMMENT.sub("", line).strip() for line in lines)
        return [line for line in bare if line]

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command, also of those that a line joins, less variables that are set for one of them."""
        found = []
        for line in self.lines:
            words = shlex.split(line)
            for joined, group in itertools.groupby(words, _JOINTS.__contains__):
                if not joined:
                    found.append(list(itertools.dropwhile(_ASSIGNMENT.match, group)))
        return found


def documents() -> list[Path]:
    """The documents that people read, generated ones among them."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(file: Path) -> Iterator[Block]:
    """All blocks of a document, fenced or indented. Raises ValueError where a fence is not understood."""
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
        elif _ANY_FENCE.match(lines[place]):
            raise ValueError(f"{name}:{place + 1}: a fence is ``` and one word for the language, not {lines[place]!r}")
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
