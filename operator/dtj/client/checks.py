"""Checking the documents of files: the API server's schema and rules, accelerator profiles, names used twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dtj.api import names, schema
from dtj.api.job import Job, as_stored_text, size_problem
from dtj.api.json import JsonObject
from dtj.api.printable import one_line
from dtj.api.schema import generated_job_schema
from dtj.api.spec import JobSpec
from dtj.api.storage_rules import note_on_sharing
from dtj.api.validation import validate
from dtj.client.manifest_files import Document, UnreadableFile, read
from dtj.client.other_objects import is_other, is_tfjob, left_alone, must_be_converted
from dtj.core.platform import Platform
from dtj.core.validity import problems


@dataclass(frozen=True, slots=True)
class Manifest:
    """A document that describes a job which can be run. ``body`` is the job as an API server would store it."""

    document: Document
    body: JsonObject
    job: Job
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class Note:
    """A line about an object that is no job, and is left alone, or about a job that is valid."""

    line: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What the files hold, in order: each item a manifest, a note, or the lines that say what is wrong with it."""

    items: tuple[Manifest | Note | tuple[str, ...], ...]

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(item for item in self.items if isinstance(item, Manifest))

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(line for item in self.items if isinstance(item, tuple) for line in item)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(item.line for item in self.items if isinstance(item, Note))


def check(files: Iterable[str], platform: Platform | None) -> Checked:
    """Read and check all documents of all files; see :func:`check_documents`."""
    found: list[Document | str] = []
    for file in files:
        try:
            found.extend(read(file))
        except UnreadableFile as error:
            found.append(str(error))
    return check_documents(found, platform)


def check_documents(found: Iterable[Document | str], platform: Platform | None) -> Checked:
    """Check documents; what could not be read is in its place as the line that says so.

    Objects of other kinds are left alone, but if there is no job at all, that is a problem. Without a platform, what
    depends on its configuration is not checked: a cluster's operator may know accelerator profiles that are not
    shipped.
    """
    seen: dict[tuple[str, str], str] = {}
    items = [item for one in found for item in _items(one, platform, seen)]
    if all(isinstance(item, Note) for item in items):
        items.append((f"there is no {names.KIND} here",))
    return Checked(tuple(items))


def _items(
    found: Document | str, platform: Platform | None, seen: dict[tuple[str, str], str]
) -> Iterator[Manifest | Note | tuple[str, ...]]:
    if isinstance(found, str):
        yield (one_line(found),)
        return
    for document in found.items():
        if is_tfjob(document.body):
            yield (one_line(must_be_converted(document)),)
        elif is_other(document.body):
            yield Note(one_line(left_alone(document)))
        else:
            checked = _check(document, platform, seen)
            yield checked
            note = note_on_sharing(checked.spec, checked.job.raw_spec) if isinstance(checked, Manifest) else None
            if note is not None:
                yield Note(one_line(f"{document.title}: {note}"))


def _check(
    document: Document, platform: Platform | None, seen: dict[tuple[str, str], str]
) -> Manifest | tuple[str, ...]:
    found = tuple(str(violation) for violation in validate(document.body))
    if found:
        return _titled(document, found)
    body = schema.as_stored(document.body, generated_job_schema())
    assert isinstance(body, dict)
    if problem := size_problem(as_stored_text(body.get("spec"))):
        return _titled(document, (problem,))
    job = Job.from_object(body)
    found = job.problems if platform is None else tuple(problem.message for problem in problems(job, platform))
    if found or job.spec is None:
        return _titled(document, found)
    if job.key in seen:
        taken = f'metadata.name: "{job.name}" is taken by another job here ({seen[job.key]}); choose another name'
        return _titled(document, (taken,))
    seen[job.key] = document.title
    return Manifest(document=document, body=body, job=job, spec=job.spec)


def _titled(document: Document, found: tuple[str, ...]) -> tuple[str, ...]:
    # A field's name is the manifest's: a line break in it would begin a line of its own, with whatever it says.
    return tuple(one_line(f"{document.title}: {problem}") for problem in found)
