"""Numbers, times, counts, paths and objects of a cluster as people and programs like to read them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dtj.api import names
from dtj.api.printable import printable
from dtj.api.tfjob import names as tfjob

if TYPE_CHECKING:
    from yaml import SafeDumper

    from dtj.api.json import JsonObject
    from dtj.api.status import RestartCounts

_NUMBERS: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_TIMES: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s"))


def short_number(value: float) -> str:
    """About three digits: 7.25, 843, 12.3k, 1.2M."""
    for size, unit in _NUMBERS:
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def short_time(seconds: float) -> str:
    """9s, 1m02s, 3h05m, 2d04h."""
    whole = max(0, round(seconds))
    for size, unit, below, small in _TIMES:
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02d}{small}"
    return f"{whole}s"


def counted(number: int, noun: str) -> str:
    """1 worker, 2 workers; ``ps`` and words like it stay as they are."""
    return f"{number} {noun}" if number == 1 or noun.endswith("s") else f"{number} {noun}s"


def listed(words: Iterable[str]) -> str:
    """a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def shown_path(path: Path, *, base: Path) -> str:
    """Relative to ``base`` where it lies below it."""
    return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)


def restarts(counts: RestartCounts) -> str:
    """``3 (2 error, 1 preemption)``: how many, and the classes of failures that caused them."""
    by_class = (
        ("error", counts.user),
        ("out of memory", counts.out_of_memory),
        ("preemption", counts.preemption),
        ("disruption", counts.disruption),
    )
    parts = ", ".join(f"{number} {name}" for name, number in by_class if number)
    return f"{counts.total} ({parts})" if parts else str(counts.total)


def columns(rows: Iterable[Sequence[str]], *, gap: int = 2) -> list[str]:
    """Rows of equal length as lines; each column is as wide as its widest cell."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return [(" " * gap).join(row).rstrip() for row in cells]


# -- objects of a cluster ---------------------------------------------------------------------------------------

KIND: Final = f"{names.SINGULAR}.{names.GROUP}"


def named(name: str) -> str:
    """How kubectl names a job: ``distributedtrainingjob.training.dtj.dev/digits``, and what is typed as
    ``tfjob/mnist``, ``tfjob.kubeflow.org/mnist``."""
    return "/".join(kind_and_name(name))


def kind_and_name(name: str) -> tuple[str, str]:
    """The kind of a job, as kubectl names it, and its name, by what is typed."""
    kind, _, plain = name.rpartition("/")
    return (f"{tfjob.SINGULAR}.{tfjob.GROUP}" if kind == tfjob.SINGULAR else KIND), plain


def as_json(objects: Iterable[JsonObject]) -> str:
    """The objects as a List, in ASCII. DEL is the one control character that json leaves as it is."""
    import json

    whole = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [*objects]}
    return json.dumps(whole, indent=2).replace("\x7f", "\\u007f") + "\n"


def as_yaml(documents: Iterable[Mapping[str, object]]) -> str:
    """The documents as a person reads them and kubectl applies them, with ``---`` between them: no anchors, texts of
    several lines as blocks. What is not printable is escaped, so that nothing of it is lost."""
    import yaml

    return yaml.dump_all(map(dict, documents), Dumper=_dumper(), sort_keys=False, width=120, allow_unicode=True)


@cache
def _dumper() -> type[SafeDumper]:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            """Pods share their parts; each is written out where it stands."""
            return True

        def write_double_quoted(self, text: str, split: bool = True) -> None:
            """In ASCII: PyYAML would write characters that turn the direction of writing around as they are."""
            unicode, self.allow_unicode = self.allow_unicode, False
            super().write_double_quoted(text, split)
            self.allow_unicode = unicode

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = '"' if printable(value) != value else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style=style)

    Dumper.add_representer(str, text)
    Dumper.add_multi_representer(str, text)  # the members of our enumerations
    return Dumper
