"""The documents of a file with TFJobs, each as YAML: TFJobs converted, other objects as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dtj.api.json import JsonObject, objects
from dtj.api.printable import one_line
from dtj.api.strategies import Strategy
from dtj.cli.common.terminal import say
from dtj.cli.common.yaml_text import as_yaml
from dtj.cli.convert.tfjob import GROUP, KIND, Conversion, convert, is_tfjob
from dtj.cli.convert.tfjob_pods import NotConvertible
from dtj.client.manifest_files import Document, read

_NOTHING_TO_CHECK: Final = "Nothing was left out."


@dataclass(frozen=True, slots=True)
class _Part:
    """An object of a file, and how messages name it."""

    title: str
    body: JsonObject


def converted(file: str, strategy: Strategy | None) -> Iterator[str]:
    """The objects of a file as YAML. Raises UnreadableFile, NotConvertible."""
    parts = [part for document in read(file) for part in _parts(document)]
    if not any(is_tfjob(part.body) for part in parts):
        raise NotConvertible(f"{parts[0].title}: not a TFJob: expected apiVersion {GROUP}/… and kind {KIND}")
    for part in parts:
        if not is_tfjob(part.body):
            say(f"{part.title}: {part.body.get('kind') or 'no kind'}: printed unchanged", err=True)
            yield as_yaml([part.body])
            continue
        try:
            conversion = convert(part.body, strategy=strategy)
        except NotConvertible as error:
            raise NotConvertible(f"{part.title}: {error}") from error
        for note in conversion.notes:
            say(f"{part.title}: {note}", err=True)
        yield _commented(part.body, conversion)


def _parts(document: Document) -> Iterator[_Part]:
    """A document, or the items of a list as ``kubectl get -o yaml`` prints it."""
    if document.body.get("kind") not in ("List", f"{KIND}List"):
        yield _Part(document.title, document.body)
        return
    for number, item in enumerate(objects(document.body.get("items"))):
        yield _Part(f"{document.title}: items[{number}]", item)


def _commented(tfjob: JsonObject, conversion: Conversion) -> str:
    """The job, with what to check above it."""
    # A note names fields of the TFJob: a line break in one would end the comment, and begin an object.
    notes = [f"# - {one_line(note)}" for note in conversion.notes] or [f"# {_NOTHING_TO_CHECK}"]
    version = one_line(str(tfjob["apiVersion"]))
    head = f"# From a {KIND} of {version}, by dtj convert." + (" To check:" if conversion.notes else "")
    return "\n".join([head, *notes, as_yaml([conversion.body])])
