"""Checking the documents of files: the API server's schema and rules, accelerator profiles, names used twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dtj.api import schema
from dtj.api.crd import job_schema
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.spec import JobSpec
from dtj.api.validation import validate
from dtj.cli.manifest_files import Document, UnreadableFile, read
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
class Checked:
    """What the files hold, in order: each item a manifest, or the lines that say what is wrong with it."""

    items: tuple[Manifest | tuple[str, ...], ...]

    @property
    def manifests(self) -> tuple[Manifest, ...]:
        return tuple(item for item in self.items if isinstance(item, Manifest))

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(line for item in self.items if not isinstance(item, Manifest) for line in item)


def check(files: Iterable[str], platform: Platform) -> Checked:
    """Read and check all documents of all files."""
    items: list[Manifest | tuple[str, ...]] = []
    seen: dict[tuple[str, str], str] = {}
    for file in files:
        try:
            documents = read(file)
        except UnreadableFile as error:
            items.append((str(error),))
            continue
        items.extend(_check(document, platform, seen) for document in documents)
    return Checked(tuple(items))


def _check(document: Document, platform: Platform, seen: dict[tuple[str, str], str]) -> Manifest | tuple[str, ...]:
    found = tuple(str(violation) for violation in validate(document.body))
    if found:
        return _titled(document, found)
    body = schema.without_nulls(document.body, job_schema())
    assert isinstance(body, dict)
    job = Job.from_object(body)
    found = tuple(problem.message for problem in problems(job, platform))
    if found or job.spec is None:
        return _titled(document, found)
    if job.key in seen:
        taken = f'metadata.name: "{job.name}" is taken by another job here ({seen[job.key]}); choose another name'
        return _titled(document, (taken,))
    seen[job.key] = document.title
    return Manifest(document=document, body=body, job=job, spec=job.spec)


def _titled(document: Document, found: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{document.title}: {problem}" for problem in found)
