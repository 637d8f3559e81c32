"""The trained model as a SavedModel, laid out as TensorFlow Serving expects it. Imports TensorFlow."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer import rng_state
from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.data.source import Source
from dtj_trainer.export.versions import new_draft, publish
from dtj_trainer.tasks import LearningTask, Serving

INPUT = "inputs"
SIGNATURE = "serving_default"
ONE_EXAMPLE = "one_example"
"""The signature for a batch of one: of known size, as TFLite wants it where a model loops over a sequence."""

EXTRAS = "assets.extra"
"""Where a SavedModel holds files that are no part of its graph."""


def _signature(spec: Any, batch: int | None, answer: Callable[[Any], Any]) -> Any:
    """A function of batches of the spec: `inputs`, or each of several inputs by its name."""
    flat = tf.nest.flatten(spec)
    names = [INPUT] if flat == [spec] else list(spec) if isinstance(spec, Mapping) else None
    if names is None:
        names = [f"{INPUT}_{place}" for place in range(len(flat))]
    elif isinstance(spec, Mapping):
        # As TensorFlow flattens them.
        names = sorted(names)

    @tf.function(autograph=False)
    def serve(**inputs: Any) -> Any:
        return answer(tf.nest.pack_sequence_as(spec, [inputs[name] for name in names]))

    return serve.get_concrete_function(
        **{
            name: tf.TensorSpec((batch, *one.shape[1:]), one.dtype, name=name)
            for name, one in zip(names, flat, strict=True)
        }
    )


def save(task: LearningTask, model: Any, data: Source, directory: Path, *, job: str) -> Path:
    """Writes `directory/<version>` whole or not at all, and returns it; the version is one above the highest.

    Its signature `serving_default` takes `inputs`, or each of several inputs by its name: a batch of what the model is
    trained on, or of what the task serves instead. It answers what the task serves, by name. `one_example` answers the
    same for one example of what the model is trained on.
    """
    serving = task.serving or Serving(spec=data.input_spec, encode=lambda inputs: inputs)

    forward, serves = rewritten(model), keras3.call_arguments(model, training=False)
    serve = _signature(
        serving.spec, None, lambda inputs: task.serving_outputs(forward(serving.encode(inputs), **serves))
    )
    serve_one = _signature(data.input_spec, 1, lambda inputs: task.serving_outputs(forward(inputs, **serves)))

    module = tf.Module()
    module.model = model
    # Keras 3 reads them also where nothing is drawn, and leaves those of recurrent layers out of what is saved.
    module.draws = rng_state.states(model)
    draft = new_draft(directory, job=job)
    try:
        tf.saved_model.save(module, str(draft), signatures={SIGNATURE: serve, ONE_EXAMPLE: serve_one})
        for name, content in serving.files.items():
            (draft / EXTRAS).mkdir(exist_ok=True)
            (draft / EXTRAS / name).write_bytes(content)
        return publish(draft, directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
