"""How large the project is, by room: files and lines of Python, pages and words of documents, options of the trainer.

Prints one table of what git knows in this checkout. ADRs are no pages: each is one decision and one screen.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ROOMS: Final = ("operator", "trainer-image", "tests", "scripts", "bench")
OPTION: Final = r"= option\(\s*\"--"


def files(pattern: str) -> list[Path]:
    """The files that git knows by a pattern, below the root."""
    listed = subprocess.run(["git", "ls-files", "-z", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def lines(found: Iterable[Path]) -> int:
    """How many lines they have, blank ones and comments included."""
    return sum(path.read_text().count("\n") for path in found)


def words(found: Iterable[Path]) -> int:
    """How many words, as ``wc -w`` counts them."""
    return sum(len(path.read_text().split()) for path in found)


def main() -> None:
    """Print the table."""
    for room in ROOMS:
        found = files(f"{room}/*.py")
        print(f"{room:14} {len(found):5} files {lines(found):7} lines")
        folders = sorted({path.relative_to(ROOT / room).parts[:-1][:2] for path in found})
        for folder in folders if room in ("operator", "trainer-image") else ():
            below = [path for path in found if path.relative_to(ROOT / room).parts[:-1][:2] == folder]
            print(f"  {'/'.join(folder) or '.':24} {len(below):4} {lines(below):7}")
    pages = [page for page in files("docs/*.md") if "adr" not in page.parts]
    print(f"{'docs':14} {len(pages):5} pages {words(pages):7} words")
    options = (path.read_text() for path in files("trainer-image/dtj_trainer/config/*.py"))
    print(f"{'options':14} {sum(len(re.findall(OPTION, text)) for text in options):5}")


if __name__ == "__main__":
    main()
