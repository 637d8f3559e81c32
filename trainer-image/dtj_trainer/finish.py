"""After the last step, on the leader alone: held-out data, SavedModel, result.json. Imports TensorFlow.

Works on a copy of the model outside any strategy, so no other task takes part.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from dtj_trainer.evaluation import evaluate, held_out, told
from dtj_trainer.export import export
from dtj_trainer.outputs import write_result
from dtj_trainer.progress import Phase, short_number, short_time
from dtj_trainer.run import Reporter, Run
from dtj_trainer.summaries import Summaries


def finish(
    run: Run, reporter: Reporter, summaries: Summaries, *, weights: Sequence[Any], step: int, checkpoint: Path | None
) -> None:
    """Judges the trained weights, exports them, and writes the result.

    Args:
        weights: NumPy arrays, in the model's order.
        checkpoint: of the last step, where there is one.
    """
    model = run.task.build_model(keras, run.data)
    model.set_weights(weights)

    run.board.update(phase=Phase.EVALUATING, eta_seconds=None)
    score = evaluate(run.task, model, run.data)
    summaries.write(step, held_out(score))
    run.say(f"held-out: {told(score)}  ({run.data.held_out_examples} examples that were not trained on)")
    exported = None
    if run.config.export_dir:
        run.board.update(phase=Phase.EXPORTING)
        exported = export(run.task, model, run.config.export_dir)
        run.say(f"exported: {exported}")

    rate = reporter.meter.overall_examples_per_second
    if run.config.log_dir:
        summaries.flush()
        write_result(
            run.config.log_dir,
            {
                **score,
                "steps": step,
                "examplesPerSecond": rate and round(rate, 1),
                "durationSeconds": round(reporter.seconds, 3),
                "exportPath": exported and str(exported),
                "checkpointPath": checkpoint and str(checkpoint),
            },
        )
    run.board.update(phase=Phase.DONE)
    pace = "" if rate is None else f" at {short_number(rate)} examples/s"
    run.say(f"done: {step} steps in {short_time(reporter.seconds)}{pace}")
