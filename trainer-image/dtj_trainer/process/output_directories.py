"""The directories that a run writes to, proved before anything is trained, and the files that it ends with."""

import errno
import json
import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dtj_trainer.config.cluster import CHIEF, EVALUATOR, WORKER
from dtj_trainer.config.outputs import InMemory
from dtj_trainer.config.parsing import Config
from dtj_trainer.errors import NotSaved, TrainerError, UsageError, may_pass, storage_reason
from dtj_trainer.local_files import as_json, flush_open, write_atomically
from dtj_trainer.object_store.bucket import Bucket
from dtj_trainer.object_store.log_folder import copied_to

log = logging.getLogger(__name__)

RESULT = "result.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE_BYTES = 64 * 1024
"""Content enough to need room of its own, also where small files are kept in a directory."""


def check_outputs(config: Config) -> None:
    """Creates the directories that this task will write to, and writes a file to each, which is gone afterwards.

    Raises:
        UsageError: one of them cannot be written, or is full.
    """
    if not config.script:
        # A script reads its variables itself, unless it opens a session, which checks its buckets.
        check_buckets(config)
    memory = config.checkpoint.memory
    leads, evaluates = config.cluster.leads, config.cluster.task.role == EVALUATOR
    for what, flag, directory, written in (
        ("checkpoint directory", "--checkpoint-dir", config.checkpoint.directory, leads),
        ("memory for checkpoints", InMemory.DIRECTORY, memory.directory if memory else None, True),
        ("export directory", "--export-dir", config.export_dir, leads),
        ("log directory", "--log-dir", config.log_dir, leads or evaluates),
    ):
        if written and directory is not None:
            _check(what, flag, directory)


def check_buckets(config: Config) -> None:
    """Proves that this task can use the buckets of its checkpoints, logs and exports.

    Raises:
        UsageError: one of them cannot be used, or the directory for local copies.
        StoreFailed: one of them does not answer.
    """
    for option, location in (
        ("--checkpoint-dir", config.checkpoint.location),
        ("--log-dir", config.log_location),
        ("--export-dir", config.export_location),
    ):
        if location and _uses(config, option):
            config.store.prepare_cache()
            writes = config.cluster.leads or option == "--log-dir"
            Bucket.prove(location, option=option, writes=writes, retry_seconds=config.store.retry_seconds)


@contextmanager
def copied_logs(config: Config) -> Iterator[None]:
    """While logs are written: copies them to the bucket, if they are to be there, and what is left at the end.

    Raises:
        NotSaved: the leader has done its work, and the bucket does not take what is left; a start from the last
            checkpoint writes it.
    """
    if not config.log_location or not config.log_dir or not _uses(config, "--log-dir"):
        yield
        return
    bucket = Bucket(config.log_location, option="--log-dir", retry_seconds=config.store.retry_seconds)
    logs = copied_to(bucket, config.log_dir)
    done = False
    try:
        yield
        done = True
    finally:
        try:
            logs.end()
        except (TrainerError, OSError) as error:
            what = f"the last logs and {RESULT} are" if (config.log_dir / RESULT).exists() else "the last logs are"
            problem = f"{what} not in {config.log_location}: {error}"
            if done and config.cluster.leads and config.checkpoint.directory:
                raise NotSaved(
                    f"{problem}; a job that is started again writes them, from its last checkpoint"
                ) from None
            log.warning(problem)


def _uses(config: Config, option: str) -> bool:
    role = config.cluster.task.role
    if option == "--log-dir":
        return config.cluster.leads or role == EVALUATOR
    if option == "--export-dir":
        return config.cluster.leads
    return role in (CHIEF, WORKER, EVALUATOR)


def _check(what: str, flag: str, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            # A full volume takes a name, and no content.
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            flush_open(file.fileno())
    except OSError as error:
        remedy = "make room there" if error.errno in _FULL else "mount a writable volume there"
        raise UsageError(
            f"{what} {directory}: cannot be written ({error.strerror}); {remedy}, or give another with {flag}",
            restart_may_help=may_pass(error),
        ) from None


def write_result(directory: Path, values: Mapping[str, object]) -> Path:
    """Writes result.json whole or not at all; a value of None is left out, NaN and infinity become null.

    Raises:
        NotSaved: the directory does not take it.
    """
    found = {name: as_json(value) for name, value in values.items() if value is not None}
    try:
        return write_atomically(directory / RESULT, json.dumps(found, indent=2, allow_nan=False) + "\n")
    except OSError as error:
        raise NotSaved(
            f"log directory {directory}: {RESULT} cannot be written ({storage_reason(error)}); make room there; a job "
            "that is started again writes it, from its last checkpoint"
        ) from None
