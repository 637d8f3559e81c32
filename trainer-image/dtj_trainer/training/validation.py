"""The validations of a training loop: when they come, what is shown of them, and which step is the best.

Imports TensorFlow.
"""

import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dtj_launch.ledger import Doing
from dtj_launch.progress import Phase
from dtj_trainer.checkpoint import files as checkpoints
from dtj_trainer.checkpoint.manager import VALIDATION_RECORD, Store
from dtj_trainer.config.validation import VALIDATION, KeepBest
from dtj_trainer.distribution.agreement import agree_on_held_out, of_each_replica
from dtj_trainer.errors import TrainerError, Unreadable, UsageError
from dtj_trainer.local_files import as_json, write_atomically
from dtj_trainer.periodic import EverySteps
from dtj_trainer.progress_line import short_time
from dtj_trainer.training.actions import Action, Pause
from dtj_trainer.training.evaluation import Validator, format_metrics
from dtj_trainer.training.reporting import Run, Summaries
from dtj_trainer.training.stepping import Course

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is remembered next to the checkpoints."""

    step: int = 0
    """Of the newest validation; 0: there was none."""
    values: Mapping[str, float] = field(default_factory=dict)
    best_step: int | None = None
    best_value: float | None = None

    def write(self, directory: Path, keep_best: KeepBest | None) -> None:
        """Replaces what is there.

        Raises:
            OSError: the directory does not take it.
        """
        document: dict[str, object] = {"step": self.step, "values": dict(self.values)}
        if keep_best:
            best = {"metric": keep_best.metric, "mode": keep_best.mode}
            document["best"] = {**best, "step": self.best_step, "value": self.best_value}
        write_atomically(directory / VALIDATION_RECORD, json.dumps(as_json(document), indent=2) + "\n")


def _read_record(directory: Path | None, keep_best: KeepBest | None) -> Record:
    """What a run before this one has left; an empty record if there is nothing that can be used.

    The best step by another metric is none.

    Raises:
        Unreadable: there is one that cannot be read. Without it, the best checkpoint would be removed.
    """
    if directory is None:
        return Record()
    try:
        document = json.loads((directory / VALIDATION_RECORD).read_text())
        values = {str(name): math.nan if one is None else float(one) for name, one in document["values"].items()}
        best, step = document.get("best") or {}, int(document["step"])
        found = Record(step=step, values=values)
        if keep_best and (best.get("metric"), best.get("mode")) == (keep_best.metric, keep_best.mode):
            if best["step"] is None:
                return found
            return Record(step=step, values=values, best_step=int(best["step"]), best_value=float(best["value"]))
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return Record()
    except OSError as error:
        raise Unreadable(f"record of the validations {directory / VALIDATION_RECORD}", error) from None
    # The best of what was validated so far is not known.
    return Record(values=values) if keep_best else found


class Validations(Action):
    """All tasks of a collective have one each, which come to the same."""

    changes_training = False
    """The record holds which step was validated last."""
    doing = Doing.VALIDATING

    def __init__(
        self,
        run: Run,
        strategy: Any,
        store: Store,
        *,
        model: Any,
        objective: Any,
        course: Course,
        first_step: int,
    ) -> None:
        """Reads what a run before this one has left; the leader's word counts.

        Args:
            store: of the checkpoints, restored.
            objective: of the training.
            course: of the training.

        Raises:
            UsageError: there is no metric of the name that --keep-best has.
        """
        config, policy = run.config, run.config.validation
        assert policy.every is not None  # a run that validates
        self._run, self._strategy, self._store = run, strategy, store
        self.schedule = EverySteps(
            policy.every.steps(course.steps_per_epoch),
            course.total_steps,
            shift=course.shift if policy.every.epochs else 0,
        )
        self._keep_best = policy.keep_best
        self._validate = Validator(
            strategy, model, objective, run.validation_data,
            batch=course.batch,
            agree_on_data=lambda differs: agree_on_held_out(
                config, strategy, differs=differs, error=run.validation_data.changed
            ),
        )  # fmt: skip
        names = [f"{VALIDATION}{name}" for name in self._validate.names()]
        if self._keep_best and self._keep_best.metric not in names:
            raise UsageError(
                f"--keep-best={self._keep_best.metric}: there is no such metric; this model has {', '.join(names)}"
            )
        directory = config.log_dir / "validation" if config.log_dir and config.cluster.leads else None
        self._summaries = Summaries(directory, prefix=VALIDATION)
        self._record = self._agreed(self._found() if config.cluster.leads else Record(), first_step)
        store.pinned = self._record.best_step
        self.is_overdue = bool(first_step) and self.schedule.is_due(first_step) and self._record.step < first_step
        """Whether the run before this one has left a step without its validation."""

    @property
    def values(self) -> Mapping[str, float]:
        """Of the newest validation, by the names that they are shown under."""
        return self._record.values

    @property
    def best_step(self) -> int | None:
        """Whose weights are to be exported; None if no step is kept as the best."""
        return self._record.best_step

    def run(self, pause: Pause) -> bool:
        """Validates, and shows what was found; see `Action`. Saves the step if it is the best one so far.

        The best one before stays that where this one cannot be saved.
        """
        run, progress_store, step = self._run, self._run.progress_store, pause.step
        progress_store.update(phase=Phase.EVALUATING)
        began = time.monotonic()
        found = self._validate(lambda: run.termination.requested, pause.alive)
        progress_store.update(phase=Phase.TRAINING)
        if found is None:
            return False
        values = {f"{VALIDATION}{name}": value for name, value in found.items()}
        best_step, best_value = self._record.best_step, self._record.best_value
        keep = self._keep_best
        is_best = keep is not None and keep.is_better(values[keep.metric], best_value)
        # The one before stays until this one is written and known to be the best.
        is_kept = is_best and pause.save()
        if keep and is_kept:
            best_step, best_value = step, values[keep.metric]
        self._record = Record(step=step, values=values, best_step=best_step, best_value=best_value)
        self._store.pinned = best_step
        if run.config.cluster.leads:
            self._summaries.write(step, found)
            self._summaries.flush()
            self._write()
            seconds = short_time(time.monotonic() - began)
            kept = "  the best so far" if is_kept else "  the best so far, but not saved" if is_best else ""
            log.info(
                f"validation: step {step}/{self.schedule.total_steps}  {format_metrics(values)}  in {seconds}{kept}"
            )
        return True

    def _found(self) -> Record:
        directory = self._run.config.checkpoint.directory
        found = _read_record(directory, self._keep_best)
        if found.best_step is None or directory is None:
            return found
        problem = None
        if found.best_step not in self._store.steps():
            problem = "is not there"
        # In a bucket, what has a marker is whole, and to fetch it takes long.
        elif self._run.config.checkpoint.location is None and (damage := self._store.problem_of(found.best_step)):
            problem = f"cannot be used ({damage})"
        if problem is None:
            return found
        path = checkpoints.path_of(directory, found.best_step)
        log.warning(f"the best checkpoint, {path}, {problem}; only later steps can be the best now")
        return Record(values=found.values)

    def give_up_best(self) -> None:
        """The best step cannot be restored any more: there is none from now on."""
        self._record = Record(step=self._record.step, values=self._record.values)

    def _agreed(self, record: Record, first_step: int) -> Record:
        """The leader's record, on all tasks; the values are for the leader alone to show.

        A run that restored an older step than the last validated one validates again on its way.
        """
        record = replace(record, step=min(record.step, first_step))
        if self._run.config.strategy != "MultiWorkerMirrored":
            return record
        numbers = (record.step, record.best_step or 0, _as_whole(record.best_value))
        # The first replica is the leader's.
        step, best, value = (of_each_replica(self._strategy, number)[0] for number in numbers)
        return Record(
            step=step, values=record.values, best_step=best or None, best_value=_as_float(value) if best else None
        )

    def _write(self) -> None:
        directory = self._run.config.checkpoint.directory
        if directory is None:
            return
        try:
            self._record.write(directory, self._keep_best)
            self._store.upload_note(VALIDATION_RECORD)
        except TrainerError as error:
            log.warning(f"{error}; the validation is not recorded")
        except OSError as error:
            log.warning(f"checkpoint directory {directory}: {error.strerror}; the validation is not recorded")


def _as_whole(value: float | None) -> int:
    """The bits of a number, so that all tasks have the same."""
    return int(np.float64(math.nan if value is None else value).view(np.int64))


def _as_float(bits: int) -> float:
    return float(np.int64(bits).view(np.float64))
