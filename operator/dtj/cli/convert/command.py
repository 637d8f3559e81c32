"""``dtj convert``: TFJobs of Kubeflow as jobs of ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click

from dtj.api.json import JsonObject, objects
from dtj.api.printable import one_line
from dtj.api.spec import Strategy
from dtj.cli.common.choices import OneOf
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.terminal import say, write
from dtj.cli.common.yaml_text import as_yaml
from dtj.cli.convert.tfjob import GROUP, KIND, Conversion, convert, is_tfjob
from dtj.cli.convert.tfjob_pods import NotConvertible
from dtj.client.manifest_files import Document, UnreadableFile, read

_NOTHING_TO_CHECK: Final = "Nothing was left out."


@dataclass(frozen=True, slots=True)
class _Part:
    """An object of a file, and how messages name it."""

    title: str
    body: JsonObject


@click.command("convert")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option(
    "--strategy",
    type=OneOf(Strategy),
    help="The strategy that the script uses; else the one that fits the roles.",
)
def convert_files(files: tuple[str, ...], strategy: Strategy | None) -> int:
    """Turn Kubeflow's TFJobs into jobs of ours, on standard output.

    Each job begins with a comment that lists what could not be carried over and what to check; the same lines go to
    standard error. Other objects of a FILE (- is standard input) are printed as they are. Comments of the FILE are
    lost.

    Exit codes: 0 done, 2 no TFJob, or none that Kubeflow would run.
    """
    try:
        made = [text for file in files for text in _converted(file, strategy)]
    except (UnreadableFile, NotConvertible) as error:
        say(str(error), err=True)
        return Exit.USAGE
    write("---\n".join(made))
    return Exit.OK


def _converted(file: str, strategy: Strategy | None) -> Iterator[str]:
    """The objects of a file as YAML. Raises UnreadableFile, NotConvertible."""
    parts = [part for document in read(file) for part in _parts(document)]
    if not any(is_tfjob(part.body) for part in parts):
        raise NotConvertible(f"{parts[0].title}: no TFJob: apiVersion {GROUP}/… and kind {KIND} are wanted")
    for part in parts:
        if not is_tfjob(part.body):
            say(f"{part.title}: {part.body.get('kind') or 'no TFJob'}: printed as it is", err=True)
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
    said = [f"# - {one_line(note)}" for note in conversion.notes] or [f"# {_NOTHING_TO_CHECK}"]
    version = one_line(str(tfjob["apiVersion"]))
    head = f"# From a {KIND} of {version}, by dtj convert." + (" To check:" if conversion.notes else "")
    return "\n".join([head, *said, as_yaml([conversion.body])])
