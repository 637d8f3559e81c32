"""What the folder of a local run holds about it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from dtj.api.json import JsonObject, dig, text
from dtj.api.names import KIND
from dtj.cli.common.local_run import NoObjects, read_manifest, read_objects
from dtj.cli.report.evidence import LOG_BYTES, Evidence, Log, Unread, by_time, last_lines
from dtj.cli.report.scalars import read_scalars
from dtj.local.run_directory import RunDirectory

_SCALARS: Final = "train"
"""The run of TensorBoard that holds the training's own curves."""


def gather(directory: RunDirectory) -> Evidence:
    """All that is known of a run on this machine. Raises NoManifest."""
    manifest = read_manifest(directory)
    unread: list[Unread] = []
    stored = _stored(directory, unread)
    return Evidence(
        source=f"run {directory.path.resolve().name} on this machine",
        taken_at=datetime.now(UTC),
        job=next(iter(_of_kind(stored, KIND)), manifest),
        pods=tuple(_of_kind(stored, "Pod")),
        events=tuple(by_time(_of_kind(stored, "Event"))),
        objects={"service": tuple(_of_kind(stored, "Service"))},
        logs=tuple(_logs(directory, text(dig(manifest, "metadata", "name")), unread)),
        scalars=read_scalars(directory.tensorboard / _SCALARS),
        unread=tuple(unread),
    )


def _stored(directory: RunDirectory, unread: list[Unread]) -> list[JsonObject]:
    """The objects of the run, oldest first."""
    try:
        return read_objects(directory.objects)
    except NoObjects as error:
        unread.append(Unread("status, pods and events", str(error)))
        return []


def _of_kind(stored: list[JsonObject], kind: str) -> list[JsonObject]:
    return [item for item in stored if item.get("kind") == kind]


def _logs(directory: RunDirectory, job: str, unread: list[Unread]) -> Iterator[Log]:
    """One a replica, named as its pod would be, and the runner's own."""
    for file in sorted(directory.logs.glob("*.log")):
        name = f"{job}-{file.stem}" if file != directory.runner_log else "dtj"
        try:
            with file.open("rb") as opened:
                opened.seek(max(0, file.stat().st_size - LOG_BYTES))
                yield Log(name, last_lines(opened.read().decode(errors="replace")))
        except OSError as error:
            unread.append(Unread(f"log of {name}", error.strerror or str(error)))
