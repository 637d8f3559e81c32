"""The evaluator: judges each checkpoint on held-out data while the others train. Imports TensorFlow.

It takes part in no cluster and no strategy: all it shares with the training is the checkpoint directory.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import tensorflow as tf

from dtj_launch.progress import Phase
from dtj_trainer import two_kerases
from dtj_trainer.checkpoint import files as checkpoints
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.checkpoint.mirror import CheckpointMirror, mirror_of
from dtj_trainer.checkpoint.state import Damaged, State
from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution.stall_watch import Stalled
from dtj_trainer.errors import Unreadable
from dtj_trainer.object_store.bucket import StoreFailed
from dtj_trainer.process.watchdog import Watchdog
from dtj_trainer.training.evaluation import Evaluation, for_result, format_metrics
from dtj_trainer.training.model import seed_alike
from dtj_trainer.training.reporting import Run, Summaries
from dtj_trainer.training.stepping import Course

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_LOOK_IN_BUCKET_SECONDS = 5.0


def watch(run: Run) -> None:
    """Judges every checkpoint that comes, in the order of the steps, and returns after that of the last step."""
    directory = run.config.checkpoint.directory
    assert directory is not None  # a checked configuration
    seed_alike(run.config)
    model = run.model.build(run.data)
    step, total, seen, batch = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(4))
    state = State(
        {"weights": variable_names.of_model(model, model.weights)},
        weights=two_kerases.variables(model.weights),
        optimizer=[],
        step=step,
        total_steps=total,
        held_out=[run.validation_data.variable],
        examples=[seen],
        batch=[batch],
    )
    summaries = Summaries(run.config.log_dir / "evaluation" if run.config.log_dir else None)
    mirror = mirror_of(run.config.checkpoint)
    # The devices of the training are not known here: a global batch is more than each of them takes.
    evaluate = Evaluation(run.model, model, run.validation_data, batch=run.config.batch_size.examples)
    log.info(f"evaluator: watching {mirror or directory}")
    run.progress_store.update(phase=Phase.EVALUATING)
    judged: set[int] = set()
    unreadable: dict[int, object] = {}
    while True:
        for found in _not_judged(mirror, directory, judged):
            # On a network volume, a file may be seen before what is in it, or before the others of the checkpoint.
            files = _files(directory, found)
            if unreadable.get(found) == files:
                continue
            again = " when its files change"
            try:
                problem = _restore(state, directory, found)
            except Unreadable as error:
                if not error.restart_may_help:
                    raise
                problem, files, again = str(error), None, ""
            if problem:
                if found not in unreadable:
                    log.warning(
                        f"checkpoint of step {found} cannot be evaluated: {problem}; the evaluator looks again{again}"
                    )
                unreadable[found] = files
                continue
            judged.add(found)
            if mirror:
                checkpoints.remove(directory, found)
            if run.validation_data.differs_from_checkpoint():
                raise run.validation_data.not_those_of_checkpoint(str(checkpoints.path_of(directory, found)))
            with _watchdog(run.config) as watchdog:
                if len(judged) == 1:  # the first batch traces and compiles
                    watchdog.feed(max(run.config.stall_timeout, run.config.start_timeout))
                score = evaluate(batch_done=watchdog.feed)
            summaries.write(found, for_result(score))
            summaries.flush()
            last = _last_step(run, found, seen=int(seen.numpy()), batch=int(batch.numpy()))
            run.progress_store.update(step=found, total_steps=last, metrics=score, last_checkpoint_step=found)
            log.info(f"step {found}/{last}  held-out: {format_metrics(score)}")
            if found >= last:
                run.progress_store.update(phase=Phase.DONE)
                log.info("evaluator: done, this was the last step")
                return
        time.sleep(_LOOK_IN_BUCKET_SECONDS if mirror else _LOOK_SECONDS)


def _watchdog(config: Config) -> Watchdog:
    """Ends the evaluator when no batch is evaluated for too long."""
    what = f"no batch of the held-out examples was evaluated for {config.stall_timeout:g} s (--stall-timeout)"
    error = Stalled(f"{what}: the evaluator waits for its data, or is in the model")
    return Watchdog(config.stall_timeout, error)


def _not_judged(mirror: CheckpointMirror | None, directory: Path, judged: set[int]) -> Iterator[int]:
    """The steps of the checkpoints that are not judged, oldest first; each is in the directory then.

    If the object store does not answer, the others train on, so the next look is the one that counts.
    """
    try:
        for step in reversed(mirror.steps() if mirror else checkpoints.find(directory)):
            # One that cannot be fetched was removed for a newer one.
            if step not in judged and (mirror is None or mirror.fetch(step)):
                yield step
    except StoreFailed as error:
        log.warning(f"{error}; the evaluator tries again")


def _last_step(run: Run, step: int, *, seen: int, batch: int) -> int:
    """The last step: when all epochs that the configuration asks for are seen.

    The directory may still hold the end of an earlier, shorter run, so what the checkpoint says does not count.

    Args:
        seen: examples, by the checkpoint of this step.
        batch: the global one, by the same.
    """
    course = Course(examples=run.data.examples, epochs=run.config.epochs, batch=batch)
    return course.resumed(step, seen=seen).total_steps


def _files(directory: Path, step: int) -> object:
    """What is there of a checkpoint: it differs when more of it can be seen."""
    found = []
    for path in sorted(directory.glob(f"{checkpoints.path_of(directory, step).name}.*")):
        with suppress(OSError):  # removed for a newer one
            status = path.stat()
            found.append((path.name, status.st_size, status.st_mtime_ns))
    return found


def _restore(state: State, directory: Path, step: int) -> str | None:
    """Restores one checkpoint, or says why that is not possible: it is damaged, or was removed for a newer one.

    Raises:
        Unreadable: its files are there, and cannot be read.
    """
    try:
        state.restore(state.read(directory, step))
    except Damaged as problem:
        return str(problem)
    return None
