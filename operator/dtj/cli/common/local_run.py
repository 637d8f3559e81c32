"""What the folder of a run on this machine holds about its job."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dtj.api.json import JsonObject, objects
from dtj.api.names import KIND
from dtj.client.manifest_files import UnreadableFile, read
from dtj.local.run_directory import RunDirectory


class NoManifest(Exception):
    """A run whose manifest cannot be read; the message says why, in one line."""


class NoObjects(Exception):
    """A run without a record of its objects; the message says why."""


def read_manifest(directory: RunDirectory) -> JsonObject:
    """The job as it was run. Raises NoManifest."""
    try:
        return read(str(directory.manifest))[0].body
    except UnreadableFile as error:
        raise NoManifest(f"--run: {error}") from error


def read_objects(file: Path) -> list[JsonObject]:
    """The objects of a run as they were at its end, in the order in which they came. Raises NoObjects."""
    try:
        return objects(msgspec.json.decode(file.read_bytes(), type=dict).get("items"))
    except FileNotFoundError:
        raise NoObjects(f"there is no {file.name}: the run has not ended, or was not followed to its end") from None
    except (OSError, msgspec.DecodeError) as error:
        raise NoObjects(f"{file.name}: {error}") from error


def read_job(directory: RunDirectory) -> JsonObject:
    """The job with its last status if there is a record of it. Raises NoManifest."""
    try:
        found = (item for item in read_objects(directory.objects) if item.get("kind") == KIND)
        return next(found, None) or read_manifest(directory)
    except NoObjects:
        return read_manifest(directory)
