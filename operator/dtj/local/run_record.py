"""What a run's folder holds about it: its manifest, its objects at its end, and what happened, as it happened.

The objects of a run are written at its end. The record of who started it, with what, and of the phases of its replicas
is there also while the run goes on, and after ``kill -9``.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

import dtj
from dtj.api.json import JsonObject, objects
from dtj.api.printable import printable
from dtj.local.machine import cores
from dtj.local.objects import timestamp
from dtj.local.run_directory import RunDirectory, RunError, write_privately
from dtj.local.trainer import Trainer
from dtj.local.view import RunView

log = logging.getLogger(__name__)

MAX_PHASES: Final = 5000
"""Changes that are written down of one start: a script may validate every second, for days."""


class RecordedPhase(msgspec.Struct, frozen=True, rename="camel"):
    """A replica, such as worker-0, begins something; ``at`` is when, as an API server writes it."""

    replica: str
    phase: str
    at: str


class Start(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One start of a run, by ``command`` in ``folder``. ``ended_at`` is empty while it runs, and if it was killed."""

    started_at: str
    command: tuple[str, ...] = ()
    folder: str = ""
    host: Mapping[str, str] = msgspec.field(default_factory=dict)
    versions: Mapping[str, str] = msgspec.field(default_factory=dict)
    phases: tuple[RecordedPhase, ...] = ()
    ended_at: str = ""


class RunRecord(msgspec.Struct, frozen=True):
    """All starts of a run: the first, and one for each time that it was resumed."""

    starts: tuple[Start, ...] = ()


def read_record(file: Path) -> RunRecord:
    """The record of a run; an empty one if there is none that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunRecord)
    except (OSError, msgspec.DecodeError):
        return RunRecord()


def read_manifest(directory: RunDirectory) -> JsonObject:
    """The job as it was run. Raises RunError."""
    file = directory.manifest
    try:
        body = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise RunError(f"--run: {file}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none; lists without end
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        where = f": line {mark.line + 1}" if mark is not None else ""
        raise RunError(f"--run: {file}{where}: is not YAML") from error
    if not isinstance(body, dict):
        raise RunError(f"--run: {file}: holds no job")
    return body


def read_objects(file: Path) -> list[JsonObject]:
    """The objects of a run as they were at its end, in the order in which they came. Raises RunError."""
    try:
        return objects(msgspec.json.decode(file.read_bytes(), type=dict).get("items"))
    except FileNotFoundError:
        raise RunError(f"there is no {file.name}: the run has not ended, or was not followed to its end") from None
    except (OSError, msgspec.DecodeError) as error:
        raise RunError(f"{file.name}: {error}") from error


class Recorder:
    """Adds one start to the record of a run. A disk that takes no more costs the record, not the run."""

    def __init__(self, file: Path, *, trainer: Trainer, command: tuple[str, ...]) -> None:
        self._file = file
        self._earlier = read_record(file).starts
        self._start = Start(
            started_at=timestamp(),
            # Names of files need not be UTF-8, and JSON must be.
            command=tuple(map(printable, command)),
            folder=printable(str(Path.cwd())),
            host=_host(),
            versions={"dtj": dtj.__version__, **dict(trainer.versions)},
        )
        self._phases: dict[str, str] = {}
        self._write()

    def see(self, view: RunView) -> None:
        """Write down which replicas do something else than before."""
        at = timestamp()
        changes = [
            RecordedPhase(replica.name, replica.state, at)
            for replica in view.replicas
            if self._phases.get(replica.name) != replica.state
        ]
        if changes and len(self._start.phases) < MAX_PHASES:
            self._phases.update((change.replica, change.phase) for change in changes)
            self._start = msgspec.structs.replace(self._start, phases=(*self._start.phases, *changes))
            self._write()

    def end(self) -> None:
        """Write down that the run has ended, or was stopped."""
        self._start = msgspec.structs.replace(self._start, ended_at=timestamp())
        self._write()

    def _write(self) -> None:
        keep(self._file, RunRecord((*self._earlier, self._start)))


def keep(file: Path, value: object) -> None:
    """Write JSON. If the disk takes no more, the run matters more."""
    try:
        write_privately(file, msgspec.json.format(msgspec.json.encode(value)))
    except OSError as error:
        log.warning("%s: cannot be written: %s", file, error.strerror)


def _host() -> dict[str, str]:
    return {"name": platform.node(), "system": platform.platform(), "CPUs": str(cores())}
