"""After the last step, on the leader alone: held-out data, exported model, result.json. Imports TensorFlow.

Works on a copy of the model outside any strategy, so no other task takes part.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dtj_launch.progress import Phase
from dtj_trainer.config.outputs import SAVED_MODEL
from dtj_trainer.config.parsing import Config
from dtj_trainer.export import conversion, saved_model
from dtj_trainer.export.conversion import ConversionFailed
from dtj_trainer.export.versions import Bundle, measure
from dtj_trainer.object_store import export_versions
from dtj_trainer.object_store.bucket import Bucket
from dtj_trainer.process.ending import leave_report
from dtj_trainer.process.output_directories import write_result
from dtj_trainer.process.user_function import guarded
from dtj_trainer.progress_line import short_number, short_time
from dtj_trainer.training.evaluation import Evaluation, for_result, format_metrics
from dtj_trainer.training.model import seed_alike
from dtj_trainer.training.reporting import Reporter, Run, Summaries

log = logging.getLogger(__name__)


def finish(
    run: Run,
    reporter: Reporter,
    summaries: Summaries,
    *,
    weights: Sequence[Any],
    step: int,
    best_step: int | None = None,
    checkpoint: str | None,
    batch: int,
) -> None:
    """Judges the trained weights, exports them, and writes the result.

    Args:
        weights: NumPy arrays, in the model's order.
        step: the last one.
        best_step: that the weights are of, if it is not the last.
        checkpoint: of these weights, where there is one.
        batch: examples that a device took at once in the training; the evaluation takes no more.

    Raises:
        UsageError: a SavedModel cannot hold the model. The result is there.
        ConversionFailed: the model could not be exported in each form that was asked for. SavedModel, the other forms
            and the result are there.
    """
    seed_alike(run.config)
    model = run.model.build(run.data)
    model.set_weights(weights)

    run.progress_store.update(phase=Phase.EVALUATING, eta_seconds=None)
    score = Evaluation(run.model, model, run.validation_data, batch=batch)()
    summaries.write(step, for_result(score))
    log.info(f"held-out: {format_metrics(score)}  ({run.data.validation_examples} examples that were not trained on)")
    rate, seconds = reporter.meter.overall_examples_per_second, reporter.seconds
    result = {
        **score,
        "steps": step,
        "firstStep": reporter.first_step,
        "bestStep": best_step,
        "examplesPerSecond": rate and round(rate, 1),
        "durationSeconds": round(seconds, 3),
        "checkpointPath": checkpoint,
    }
    if run.config.log_dir:
        summaries.flush()
    # Safe, whatever becomes of the export.
    _keep(run, result)
    if run.config.export_dir:
        _export(run, model, run.config.export_dir, result)
    run.progress_store.update(phase=Phase.DONE, step=step)
    leave_report(run.progress_store.document())
    pace = "" if rate is None else f", {short_number(rate)} examples/s on average without compilation and checkpoints"
    log.info(f"done: {step - reporter.first_step} steps in {short_time(seconds)}{pace}")


def _export(run: Run, model: Any, directory: Path, result: Mapping[str, object]) -> None:
    """Exports the model in each form, reports it, and keeps the result; then raises what failed, if anything did."""
    run.progress_store.update(phase=Phase.EXPORTING)
    name = run.config.user_code.model or f"--task={run.config.task}"
    save = partial(
        saved_model.save, model, run.model.serving, run.data.input_spec, directory, job=run.config.job, name=name
    )
    path = guarded(name, "exporting the model", save)
    made, failures = [SAVED_MODEL], []
    if run.config.export_location is None:
        # Safe, whatever becomes of the conversions. What is not in the bucket yet is no export.
        _keep(run, result, measure(path, made))
    for name in run.config.export_formats:
        if name == SAVED_MODEL:
            continue
        try:
            if note := conversion.add(name, path):
                log.info(f"{name}: {note}")
            made.append(name)
        except ConversionFailed as failure:
            failures.append(str(failure))
    exported = _uploaded(run.config, path, measure(path, made))
    _keep(run, result, exported)
    run.progress_store.update(export=exported.document())
    log.info(f"exported: {exported.path}  {', '.join(made)}  {short_number(exported.size)} bytes  {exported.digest}")
    if failures:
        raise ConversionFailed("; ".join(failures).replace(str(path), exported.path))


def _uploaded(config: Config, path: Path, exported: Bundle) -> Bundle:
    """The model in the bucket, if it is exported to one; the local copy is removed."""
    if config.export_location is None:
        return exported
    bucket = Bucket(config.export_location, option="--export-dir", retry_seconds=config.store.retry_seconds)
    try:
        return replace(exported, path=export_versions.upload(bucket, path, exported.document()))
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _keep(run: Run, result: Mapping[str, object], exported: Bundle | None = None) -> None:
    if run.config.log_dir:
        model = {"exportPath": exported.path, "export": exported.document()} if exported else {}
        write_result(run.config.log_dir, {**result, **model})
