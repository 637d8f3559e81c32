"""Manifests, as files, YAML text or mappings, checked by the rules of ``dtj validate`` without a cluster."""

from __future__ import annotations

import json
import logging
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from dtj.api import names, schema
from dtj.api.job import Job, as_stored_text, form_of, size_problem
from dtj.api.json import JsonObject, dig, text
from dtj.api.printable import one_line
from dtj.api.spec import JobSpec
from dtj.api.storage_rules import note_on_sharing
from dtj.api.tfjob import names as of_kubeflow
from dtj.api.validation import validate
from dtj.client.errors import InvalidManifest
from dtj.client.manifest_files import STDIN, Document, UnreadableFile, parse, read
from dtj.core.platform import Platform
from dtj.core.validity import problems


@dataclass(frozen=True, slots=True)
class Manifest:
    """A document that describes a job which can be run. ``body`` is the job as an API server would store it.

    ``config_map`` holds the code that the pods unpack, if they do: see :mod:`dtj.client.code_manifest`.
    """

    document: Document
    body: JsonObject
    job: Job
    spec: JobSpec
    config_map: JsonObject | None = None

    @property
    def objects(self) -> tuple[JsonObject, ...]:
        """What ``kubectl apply`` needs: the job, after what it needs before it."""
        return (self.body,) if self.config_map is None else (self.config_map, self.body)


@dataclass(frozen=True, slots=True)
class Checked:
    """What the files hold, in order: each item a manifest, the lines that say what is wrong with it, or a note: a line
    about an object that is no job, and is left alone, or about a job that is valid."""

    items: tuple[Manifest | str | tuple[str, ...], ...]

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(item for item in self.items if isinstance(item, Manifest))

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(line for item in self.items if isinstance(item, tuple) for line in item)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(item for item in self.items if isinstance(item, str))


def check(files: Iterable[str], platform: Platform | None, *, tfjobs: bool = False) -> Checked:
    """Read and check all documents of all files; see :func:`check_documents`."""
    return check_documents((found for file in files for found in documents(file)), platform, tfjobs=tfjobs)


def documents(file: str) -> Iterable[Document | str]:
    """The documents of a file, or the line that says why it gives none."""
    try:
        return read(file)
    except UnreadableFile as error:
        return (str(error),)


def check_documents(found: Iterable[Document | str], platform: Platform | None, *, tfjobs: bool = False) -> Checked:
    """Check documents; what could not be read is in its place as the line that says so.

    Objects of other kinds are left alone, but if there is no job at all, that is a problem. Without a platform, what
    depends on its configuration is not checked: a cluster's operator may know accelerator profiles that are not
    shipped. ``tfjobs`` is whether TFJobs of Kubeflow are checked as the operator runs them; else they are to be
    converted.
    """
    seen: dict[tuple[str, ...], str] = {}
    items = [item for one in found for item in _items(one, platform, seen, tfjobs=tfjobs)]
    if all(isinstance(item, str) for item in items):
        items.append((f"there is no {names.KIND} here",))
    return Checked(tuple(items))


def _items(
    found: Document | str, platform: Platform | None, seen: dict[tuple[str, ...], str], *, tfjobs: bool
) -> Iterator[Manifest | str | tuple[str, ...]]:
    if isinstance(found, str):
        yield (one_line(found),)
        return
    for document in found.items():
        if is_tfjob(document.body) and not (tfjobs and document.body["apiVersion"] == of_kubeflow.API_VERSION):
            words = f"this is a TFJob of Kubeflow: convert it with: {_conversion(document.path or STDIN)}"
            yield (one_line(f"{document.title}: {words}"),)
        elif is_other(document.body) and not is_tfjob(document.body):
            words = f"left alone, because it is not a {names.KIND}; kubectl apply creates it"
            yield one_line(f"{document.title}: {document.body['kind']}: {words}")
        else:
            checked = _check(document, platform, seen)
            yield checked
            note = note_on_sharing(checked.spec, checked.job.raw_spec) if isinstance(checked, Manifest) else None
            if note is not None:
                yield one_line(f"{document.title}: {note}")


def _conversion(source: str) -> str:
    """The command, which must not write to what it reads: a shell empties the file first."""
    made = "job.yaml" if source == STDIN else f"{Path(source).stem}-dtj.yaml"
    return f"dtj convert {shlex.quote(source)} > {shlex.quote(made)}"


def _check(
    document: Document, platform: Platform | None, seen: dict[tuple[str, ...], str]
) -> Manifest | tuple[str, ...]:
    found = tuple(str(violation) for violation in validate(document.body))
    if found:
        return _titled(document, found)
    body = schema.as_stored(document.body, form_of(document.body).schema())
    assert isinstance(body, dict)
    if problem := size_problem(as_stored_text(body.get("spec"))):
        return _titled(document, (problem,))
    job = Job.from_object(body)
    found = job.problems if platform is None else tuple(problem.message for problem in problems(job, platform))
    if found or job.spec is None:
        return _titled(document, found)
    key = (job.form.kind, *job.key)
    if key in seen:
        taken = f'metadata.name: "{job.name}" is taken by another job here ({seen[key]}); choose another name'
        return _titled(document, (taken,))
    seen[key] = document.title
    return Manifest(document=document, body=body, job=job, spec=job.spec)


def _titled(document: Document, found: tuple[str, ...]) -> tuple[str, ...]:
    # A field's name is the manifest's: a line break in it would begin a line of its own, with whatever it says.
    return tuple(one_line(f"{document.title}: {problem}") for problem in found)


# -- what a file holds next to jobs -----------------------------------------------------------------------------

_MEANT_TO_BE_JOBS: Final = (names.KIND.lower(), names.PLURAL)


def is_tfjob(body: JsonObject) -> bool:
    """Whether an object is a TFJob of any version."""
    return text(body.get("apiVersion")).partition("/")[0] == of_kubeflow.GROUP and body.get("kind") == of_kubeflow.KIND


def is_other(body: JsonObject) -> bool:
    """Whether an object is of another kind, and not a job with a misspelt kind or apiVersion."""
    version, kind = text(body.get("apiVersion")), text(body.get("kind"))
    ours = version.partition("/")[0] == names.GROUP or kind.lower() in _MEANT_TO_BE_JOBS
    return bool(version and kind) and not ours


Source: TypeAlias = "os.PathLike[str] | str | Mapping[str, object]"
"""A path, a string (YAML where it holds a line break or begins with ``{``, else the name of a file), or a mapping."""

# -- manifests as Python users have them ------------------------------------------------------------------------

_ORIGIN = "the manifest"
_LOG = logging.getLogger("dtj.client")


def manifests_of(source: Source) -> tuple[Manifest, ...]:
    """The jobs of a manifest, by the rules of ``dtj validate`` but for accelerator profiles, which the cluster's
    operator knows. Raises InvalidManifest."""
    return sound(_checked(source))


def sound(checked: Checked) -> tuple[Manifest, ...]:
    """The manifests, of which none may have a problem. Objects of other kinds are logged. Raises InvalidManifest."""
    for note in checked.notes:
        _LOG.warning("%s", note)
    if checked.problems:
        raise InvalidManifest(checked.problems)
    return checked.manifests


def placed(manifests: Iterable[Manifest], *, namespace: str, asked: str | None) -> tuple[tuple[Manifest, str], ...]:
    """Each manifest with the namespace that it goes to: its own, else ``asked``, else ``namespace``.

    Raises InvalidManifest where one names another namespace than was asked for.
    """
    found = []
    problems = []
    for manifest in manifests:
        own = dig(manifest.document.body, "metadata", "namespace")
        if isinstance(own, str) and own and asked is not None and own != asked:
            problems.append(
                f'{manifest.document.title}: metadata.namespace: is "{own}", but the namespace asked for is "{asked}"; '
                "leave one of them out"
            )
        found.append((manifest, (own if isinstance(own, str) else "") or asked or namespace))
    if problems:
        raise InvalidManifest(tuple(problems))
    return tuple(found)


def _checked(source: Source) -> Checked:
    if isinstance(source, Mapping):
        return check_documents([_document(source)], None)
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return check_documents(_parsed(source), None)
    return check([os.fspath(source)], None)


def _document(source: Mapping[str, object]) -> Document | str:
    try:
        body = json.loads(json.dumps(dict(source), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return f"{_ORIGIN}: not JSON: {error}"
    return Document(path=None, number=1, alone=True, body=body, file=_ORIGIN)


def _parsed(source: str) -> Iterable[Document | str]:
    try:
        return parse(source, file=_ORIGIN)
    except UnreadableFile as error:
        return [str(error)]
