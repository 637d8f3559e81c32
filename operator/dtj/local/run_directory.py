"""The folder of one run: where its logs, metrics, checkpoints, model and TensorBoard logs are."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

from dtj.api.spec import JobSpec
from dtj.core.platform import keeps_in_memory
from dtj.core.replicas import Replica

LATEST: Final = "latest"

STOPPED: Final = "Stopped"
"""State of a job, in `RunDirectory.objects`, whose run was stopped before the job had an end of its own."""

_EARLIER: Final = re.compile(r"objects-(\d+)\.json")

_PRIVATE: Final = 0o700
"""Mode of a run's folder: the manifest holds the values of variables, and logs may hold anything, on a machine that
others use too. Of what is in it, no other user opens a file, whatever its own mode."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """``<runs>/<job>/<time>``, with ``<runs>/<job>/latest`` pointing at the newest. Paths are absolute."""

    path: Path

    @property
    def logs(self) -> Path:
        """One log a pod."""
        return self.path / "logs"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def memory(self) -> Path:
        """What the replicas would keep in the memory of their pods; made where the job keeps something there."""
        return self.path / "memory"

    @property
    def export(self) -> Path:
        return self.path / "export"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def result(self) -> Path:
        """What the trainer says of a finished training."""
        return self.tensorboard / "result.json"

    @property
    def manifest(self) -> Path:
        """The job as it was run."""
        return self.path / "manifest.yaml"

    @property
    def objects(self) -> Path:
        """The job, its pods and its events as they were at the end of the run: a List as ``kubectl get -o json``."""
        return self.path / "objects.json"

    def earlier_objects(self) -> tuple[Path, ...]:
        """The same of the starts before the last one, if the run was resumed; the first start comes first."""
        found = {int(name[1]): file for file in self.path.iterdir() if (name := _EARLIER.fullmatch(file.name))}
        return tuple(found[number] for number in sorted(found))

    @property
    def record(self) -> Path:
        """What has happened so far, also while the run goes on: see :mod:`dtj.local.run_record`."""
        return self.path / "record.json"

    @property
    def workers(self) -> Path:
        """The number of workers that was asked for while it runs: see :mod:`dtj.local.scaling`."""
        return self.path / ".workers"

    @property
    def runner_log(self) -> Path:
        """What the controller did and why."""
        return self.logs / "dtj.log"

    def replica_log(self, hostname: str) -> Path:
        """What the replica's processes wrote; ``hostname`` such as worker-0."""
        return self.logs / f"{hostname}.log"

    def replica_metrics(self, hostname: str) -> Path:
        """What the replica has measured: ``{"time": ..., "step": 120, "metrics": {"loss": 0.41}}``, one a line."""
        return self.path / "metrics" / f"{hostname}.jsonl"

    def replica_logs(self) -> tuple[Path, ...]:
        """The logs of the replicas that have written anything, by name."""
        return tuple(sorted(file for file in self.logs.glob("*.log") if file != self.runner_log))

    @property
    def lock(self) -> Path:
        """Locked by the process that runs this run, for as long as it does."""
        return self.path / ".lock"

    @property
    def running(self) -> bool:
        """Whether a process of this machine runs it now. The kernel frees the lock of a process that was killed."""
        try:
            with self.lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Run it within the block. Raises RunError if another process does, and OSError."""
        with append_privately(self.lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                words = f"{self.path} is still running: wait for its end, or stop it with Ctrl-C"
                raise RunError(words) from None
            yield


class LocalDirectories:
    """Folders of the run in place of the manifest's directories; what is a URL stays where it is.

    A local run has all of them even where the manifest names none: what was trained should be found.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    def checkpoint(self, spec: JobSpec) -> str:
        named = spec.checkpoint.directory if spec.checkpoint is not None else None
        return named if named is not None and is_url(named) else str(self._directory.checkpoint)

    def memory(self, spec: JobSpec, replica: Replica) -> str | None:
        """A folder of each replica. A disk stands in for memory: what a killed runner leaves there takes no memory."""
        return str(self._directory.memory / replica.hostname) if keeps_in_memory(spec, replica.role) else None

    def export(self, spec: JobSpec) -> str:
        named = spec.export.path if spec.export is not None else None
        return named if named is not None and is_url(named) else str(self._directory.export)

    def logs(self, spec: JobSpec) -> str:
        return str(self._directory.tensorboard)


def is_url(path: str) -> bool:
    """Whether it names a place in an object store, and no directory."""
    return "://" in path


class RunError(Exception):
    """What is asked of a run cannot be done; the message says why, and what can be, in one line."""


def write_privately(file: Path, content: bytes) -> None:
    """Write a file that stays its owner's also where the folder is copied to. Raises OSError."""
    with open(file, "wb", opener=_open_privately) as opened:
        os.fchmod(opened.fileno(), 0o600)  # of a file that was there
        opened.write(content)


def append_privately(file: Path) -> BinaryIO:
    """The file, which is made for its owner alone, to be written at its end. Raises OSError."""
    return open(file, "ab", opener=_open_privately)


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def create(runs: Path, *, job: str, now: datetime) -> RunDirectory:
    """Make the folder of a new run, and let ``latest`` point at it. Raises OSError."""
    parent = runs.resolve() / job
    parent.mkdir(parents=True, exist_ok=True)
    time = now.strftime("%Y%m%d-%H%M%S")
    for number in count(1):
        name = time if number == 1 else f"{time}-{number}"
        directory = RunDirectory(parent / name)
        try:
            directory.path.mkdir(mode=_PRIVATE)
        except FileExistsError:
            continue
        _make_folders(directory)
        _point(parent / LATEST, to=name)
        return directory
    raise AssertionError("names of runs have no end")


def latest(runs: Path, *, job: str) -> RunDirectory | None:
    """The newest run of the job; None if there is none."""
    path = runs.resolve() / job / LATEST
    return RunDirectory(path.resolve()) if path.is_dir() else None


def prepare_again(directory: RunDirectory) -> None:
    """Make the folder of an earlier run ready for its next start, within :meth:`RunDirectory.locked`: another process
    may run it until then. Raises OSError."""
    _make_folders(directory)
    # What was found at the old run's end must not pass for the new one's.
    directory.result.unlink(missing_ok=True)
    directory.workers.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        directory.objects.rename(directory.path / f"objects-{len(directory.earlier_objects()) + 1}.json")


def find(run: str, runs: Path) -> RunDirectory:
    """A run by its folder, or by the name of its job, of which the latest counts. Raises RunError."""
    for folder in (Path(run), runs / run):
        for path in (folder, folder / LATEST):
            directory = RunDirectory(path.absolute())
            if directory.tensorboard.is_dir():
                return directory
    known = jobs_with_runs(runs)
    there = f"in {runs} there are {', '.join(known)}" if known else f"{runs} holds none; dtj run makes them"
    raise RunError(f"--run {run}: neither the folder of a run nor the name of a job with a run here: {there}")


def jobs_with_runs(runs: Path) -> list[str]:
    """Names of the jobs that have run here, in order."""
    return sorted(path.parent.name for path in runs.glob(f"*/{LATEST}"))


def _make_folders(directory: RunDirectory) -> None:
    metrics = directory.path / "metrics"
    for folder in (directory.logs, directory.checkpoint, directory.export, directory.tensorboard, metrics):
        folder.mkdir(exist_ok=True)


def _point(link: Path, *, to: str) -> None:
    """Replace the link in one step, so that it is never missing."""
    fresh = link.with_name(f".{link.name}-{to}-{os.getpid()}")
    fresh.symlink_to(to)
    try:
        fresh.replace(link)
    except OSError:
        fresh.unlink()
        raise
