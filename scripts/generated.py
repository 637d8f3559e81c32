"""What scripts that write files from the code have in common: writing, or with --check saying what is stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown, in which a bar in a cell does not end it."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def write_or_check(description: str | None, files: Mapping[Path, str]) -> int:
    """Write what is stale of ``files``, path to text; with ``--check`` change nothing, and return 1 where some is."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where a file is stale")
    check = parser.parse_args().check
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        name = path.relative_to(ROOT)
        if check:
            print(f"{name} is stale: run `make generate` and commit the result", file=sys.stderr)
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[path])
        print(f"wrote {name}: {len(files[path].encode()):,} bytes")
    return 1 if check and stale else 0
