"""What the folder of a local run holds about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from dtj.api.job import parse_time
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import KIND, State
from dtj.cli.report.event_files import read_scalars
from dtj.cli.report.evidence import (
    LOG_BYTES,
    Evidence,
    Log,
    PhaseChange,
    Scalar,
    Setting,
    Unread,
    by_time,
    last_lines,
)
from dtj.cli.report.leader_log import SPEED, VALIDATION, scalars_of
from dtj.local.run_directory import STOPPED, RunDirectory
from dtj.local.run_record import NoObjects, RunRecord, Start, read_manifest, read_objects, read_record

_TRAINING: Final = "train"
_VALIDATION: Final = "validation"
"""The runs of TensorBoard that hold the curves of the training and of its validations."""

_SPEED: Final = "examples_per_second"
_NEVER: Final = "9"
"""Later than every time, as text."""

_Stored = tuple[Start | None, list[JsonObject]]


def gather(directory: RunDirectory) -> Evidence:
    """All that is known of a run on this machine, with all of its starts. Raises NoManifest."""
    unread: list[Unread] = []
    manifest, record = read_manifest(directory), read_record(directory.record)
    stored = _stored(directory, record.starts, unread)
    phases = tuple(_phases(record))
    *earlier, last = (
        _part(directory, manifest, each, phases, last=place == len(stored)) for place, each in enumerate(stored, 1)
    )
    logs = tuple(_logs(directory, text(dig(manifest, "metadata", "name")), unread))
    return replace(
        last,
        taken_at=datetime.now(UTC),
        objects={"service": tuple(_of_kind(stored[-1][1], "Service"))},
        logs=logs,
        # The log holds a line every few seconds only.
        scalars=tuple(_scalars(directory)) or scalars_of(logs),
        settings=tuple(_settings(record)),
        earlier=tuple(earlier),
        unread=tuple(unread),
    )


def _stored(directory: RunDirectory, starts: tuple[Start, ...], unread: list[Unread]) -> list[_Stored]:
    """Each start with the objects that it left: none if it still runs or was killed. There is one at least."""
    found = []
    for file in (*directory.earlier_objects(), directory.objects):
        try:
            found.append(read_objects(file))
        except NoObjects as error:
            if file == directory.objects:
                unread.append(Unread("status, pods and events", str(error)))
    if not starts:  # of a version that wrote no record
        return [(None, items) for items in found] or [(None, [])]
    begins = [start.started_at for start in starts]
    return [
        (start, next((items for items in found if start.started_at <= _created(items) < end), []))
        for start, end in zip(starts, [*begins[1:], _NEVER], strict=True)
    ]


def _created(items: list[JsonObject]) -> str:
    """When the job among these objects was created, as the runner writes it."""
    return next((text(dig(job, "metadata", "creationTimestamp")) for job in _of_kind(items, KIND)), "")


def _part(
    directory: RunDirectory, manifest: JsonObject, stored: _Stored, phases: tuple[PhaseChange, ...], *, last: bool
) -> Evidence:
    """One start, as it was at its end."""
    start, items = stored
    status = _status(directory, start, last=last) if start is not None else {}
    job = next(iter(_of_kind(items, KIND)), {**manifest, "status": status})
    return Evidence(
        source=f"run {directory.path.resolve().name} on this machine",
        taken_at=parse_time(dig(job, "status", "completionTime")) or datetime.now(UTC),
        job=job,
        pods=tuple(_of_kind(items, "Pod")),
        events=tuple(by_time(_of_kind(items, "Event"))),
        phases=phases,
        on_this_machine=True,
    )


def _status(directory: RunDirectory, start: Start, *, last: bool) -> JsonObject:
    """The status of a job of which only the record of its start is there."""
    status: JsonObject = {"state": State.RUNNING, "attempt": 1, "startTime": start.started_at}
    if last and directory.running:
        return status
    return {**status, "state": STOPPED, "completionTime": start.ended_at or _last_sign(directory, start, last=last)}


def _last_sign(directory: RunDirectory, start: Start, *, last: bool) -> str:
    """The last time at which a killed start is known to have been alive."""
    signs = [start.started_at, *(change.at for change in start.phases)]
    if last:
        written = (datetime.fromtimestamp(log.stat().st_mtime, UTC) for log in directory.replica_logs())
        signs += [moment.isoformat().replace("+00:00", "Z") for moment in written]
    return max(signs)


def _of_kind(stored: list[JsonObject], kind: str) -> list[JsonObject]:
    return [item for item in stored if item.get("kind") == kind]


def _scalars(directory: RunDirectory) -> Iterator[Scalar]:
    """What was measured in the training, and of held-out examples during it."""
    for scalar in read_scalars(directory.tensorboard / _TRAINING):
        yield replace(scalar, name=SPEED) if scalar.name == _SPEED else scalar
    for scalar in read_scalars(directory.tensorboard / _VALIDATION):
        yield replace(scalar, name=f"{VALIDATION}{scalar.name}")


def _phases(record: RunRecord) -> Iterator[PhaseChange]:
    for change in (change for start in record.starts for change in start.phases):
        at = parse_time(change.at)
        if at is not None:
            yield PhaseChange(change.replica, change.phase, at)


def _settings(record: RunRecord) -> Iterator[Setting]:
    """With what the run was started, the last time."""
    for start in record.starts[-1:]:
        if start.command:
            yield Setting("Command", "command", shlex.join(start.command))
        yield Setting("Command", "folder", start.folder)
        yield from (Setting("Versions", name, version) for name, version in start.versions.items())
        yield from (Setting("Host", name, value) for name, value in start.host.items())


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
