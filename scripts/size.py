"""How large the project is, by folder and by purpose: files and lines of Python, words of documents, options.

Prints tables of what git knows in this checkout. `size_rows.toml` says what each file is for. ADRs are no pages: each
is one decision and one screen.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
ROOMS: Final = ("operator", "trainer-image", "tests", "scripts", "bench")
PURPOSES: Final = Path(__file__).with_name("size_rows.toml")
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


class Row(NamedTuple):
    """A purpose, who is served by it, and its files."""

    name: str
    used_by: str
    files: tuple[Path, ...]


def rows() -> dict[str, tuple[Row, ...]]:
    """The rows of each part of the project.

    Raises:
        ValueError: a file is of no row, or of two; or a row names files that are not there.
    """
    found, wrong = {}, []
    for part, table in tomllib.loads(PURPOSES.read_text()).items():
        places = {str(path.relative_to(ROOT / table["root"])): path for path in files(f"{table['root']}/*.py")}
        of: dict[str, list[str]] = {place: [] for place in places}
        for name, row in table["rows"].items():
            for pattern in row["files"]:
                matching = [place for place in places if _matches(place, pattern)]
                wrong += [] if matching else [f"{name}: {pattern}: no such file"]
                for place in matching:
                    of[place].append(name)
        wrong += [
            f"{places[place]}: of {' and '.join(names) or 'no row'}" for place, names in of.items() if len(names) != 1
        ]
        found[part] = tuple(
            Row(name, row["used_by"], tuple(places[place] for place, names in of.items() if names == [name]))
            for name, row in table["rows"].items()
        )
    if wrong:
        raise ValueError(f"{PURPOSES.name}: {'; '.join(wrong)}")
    return found


def hundreds(numbers: Iterable[int]) -> list[int]:
    """The numbers rounded to hundreds, so that they sum to their own sum, rounded: those nearest to the next go up."""
    exact = list(numbers)
    down = [number // 100 * 100 for number in exact]
    missing = (round(sum(exact), -2) - sum(down)) // 100
    up = set(sorted(range(len(exact)), key=lambda place: -(exact[place] % 100))[:missing])
    return [number + 100 * (place in up) for place, number in enumerate(down)]


def _matches(place: str, pattern: str) -> bool:
    """Whether a file is of a pattern: `**` is all below a folder, `*` a part of a name."""
    (folder, _, name), (own, _, own_name) = pattern.rpartition("/"), place.rpartition("/")
    return place.startswith(f"{folder}/") if name == "**" else own == folder and fnmatchcase(own_name, name)


def main() -> None:
    """Print the tables."""
    for part, purposes in rows().items():
        counts = [lines(row.files) for row in purposes]
        print(f"{part:8} {sum(counts):6} lines")
        for row, count, about in zip(purposes, counts, hundreds(counts), strict=True):
            print(f"  {count:6} {about:6}  {row.name} ({row.used_by})")
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
