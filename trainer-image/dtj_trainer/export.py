"""The trained model as a SavedModel, laid out as TensorFlow Serving expects it. Imports TensorFlow."""

import os
import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.tasks import Serving, Task

INPUT = "inputs"


def export(task: Task, model: Any, directory: Path) -> Path:
    """Writes `directory/<version>` whole or not at all, and returns it; the version is one above the highest.

    Its signature `serving_default` takes `inputs`, [batch, ...] as in training or what the task serves instead, and
    answers what the task serves.
    """
    plain = tf.TensorSpec((None, *model.input_shape[1:]), tf.as_dtype(model.inputs[0].dtype))
    serving = task.serving or Serving(spec=plain, encode=lambda inputs: inputs)

    @tf.function(input_signature=[tf.TensorSpec(serving.spec.shape, serving.spec.dtype, name=INPUT)])
    def serve(inputs: Any) -> Any:
        return task.serve(model(serving.encode(inputs), training=False))

    module = tf.Module()
    module.model = model
    draft = directory / f".draft-{os.getpid()}"
    try:
        tf.saved_model.save(module, str(draft), signatures={"serving_default": serve})
        versions = [int(path.name) for path in directory.iterdir() if path.name.isdigit()]
        return draft.rename(directory / str(max(versions, default=0) + 1))
    finally:
        shutil.rmtree(draft, ignore_errors=True)
