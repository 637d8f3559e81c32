"""The trained model as a SavedModel, laid out as TensorFlow Serving expects it. Imports TensorFlow."""

import os
import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.data.source import Source
from dtj_trainer.export.bundle import publish
from dtj_trainer.export.serving import ServingInput, TakesRequests
from dtj_trainer.tasks import Task

INPUT = "inputs"
SIGNATURE = "serving_default"


def save(task: Task, model: Any, data: Source, directory: Path, *, job: str) -> Path:
    """Writes `directory/<version>` whole or not at all, and returns it; the version is one above the highest.

    Its signature `serving_default` takes `inputs`, a batch of what the model is trained on or of what the task's
    clients send, and answers what the task serves, by name.
    """
    asked = task.serving_input(data) if isinstance(task, TakesRequests) else _as_trained(data)
    spec = tf.TensorSpec(asked.spec.shape, asked.spec.dtype, name=INPUT)

    @tf.function(input_signature=[spec])
    def serve(inputs: Any) -> Any:
        return task.serve(model(asked.prepare(inputs), training=False))

    module = tf.Module()
    module.model = model
    module.resources = asked.resources
    # The job's name, since processes in containers all have the same number; the number, for those that are in none.
    draft = directory / f".draft-{job}-{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)  # of an attempt that was killed
    try:
        tf.saved_model.save(module, str(draft), signatures={SIGNATURE: serve})
        return publish(draft, directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _as_trained(data: Source) -> ServingInput:
    return ServingInput(spec=data.input_spec, prepare=lambda inputs: inputs)
