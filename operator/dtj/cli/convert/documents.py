"""The documents of a file with TFJobs, each as YAML: TFJobs converted, other objects as they are."""

from __future__ import annotations

from collections import Counter
from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject, text
from dtj.api.printable import one_line
from dtj.api.strategies import Strategy
from dtj.cli.common.formatting import counted, listed
from dtj.cli.common.terminal import say
from dtj.cli.common.yaml_text import as_yaml
from dtj.cli.convert.tfjob import Conversion, convert
from dtj.cli.convert.tfjob_pods import NotConvertible
from dtj.client.manifest_files import STDIN, Document, read
from dtj.client.other_objects import TFJOB, TFJOB_GROUP, is_tfjob

_NOTHING_TO_CHECK: Final = "Nothing was left out."


def converted(files: tuple[str, ...], strategy: Strategy | None) -> list[str]:
    """The objects of these files as YAML. Raises UnreadableFile, NotConvertible."""
    found = [item for file in files for document in read(file) for item in document.items()]
    if not any(is_tfjob(document.body) for document in found):
        raise NotConvertible(_no_tfjob(files, found))
    return [_as_yaml(document, strategy) for document in found]


def _no_tfjob(files: tuple[str, ...], found: list[Document]) -> str:
    """What there is instead of a TFJob."""
    names_of_files = listed("standard input" if file == STDIN else file for file in files)
    missing = f"{names_of_files}: there is no {TFJOB} ({TFJOB_GROUP}/…) here"
    if not found:
        return f"{missing}: the list has no items"
    kinds = Counter((text(d.body.get("kind")), text(d.body.get("apiVersion"))) for d in found)
    present = listed(
        f"{counted(number, kind) if kind else counted(number, 'object') + ' without a kind'} "
        f"({version or 'no apiVersion'})"
        for (kind, version), number in kinds.items()
    )
    ours = all(kind == names.KIND for kind, _ in kinds)
    return f"{missing}, but {present}" + (", which needs no conversion" if ours and len(found) == 1 else "")


def _as_yaml(document: Document, strategy: Strategy | None) -> str:
    """An object as YAML, a TFJob converted. What to check goes to standard error, too. Raises NotConvertible."""
    if not is_tfjob(document.body):
        say(f"{document.title}: {document.body.get('kind') or 'no kind'}: printed unchanged", err=True)
        return as_yaml([document.body])
    try:
        conversion = convert(document.body, strategy=strategy)
    except NotConvertible as error:
        raise NotConvertible(f"{document.title}: {error}") from error
    for note in conversion.notes:
        say(f"{document.title}: {note}", err=True)
    return _commented(document.body, conversion)


def _commented(tfjob: JsonObject, conversion: Conversion) -> str:
    """The job, with what to check above it."""
    # A note names fields of the TFJob: a line break in one would end the comment, and begin an object.
    notes = [f"# - {one_line(note)}" for note in conversion.notes] or [f"# {_NOTHING_TO_CHECK}"]
    version = one_line(str(tfjob["apiVersion"]))
    head = f"# From a {TFJOB} of {version}, by dtj convert." + (" To check:" if conversion.notes else "")
    return "\n".join([head, *notes, as_yaml([conversion.body])])
