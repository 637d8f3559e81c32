"""The trained model as a SavedModel, laid out as TensorFlow Serving expects it. Imports TensorFlow."""

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer import random_layers
from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.config.entry_points import Name
from dtj_trainer.errors import NotSaved, UsageError, storage_reason
from dtj_trainer.export.versions import new_draft, publish

INPUT = "inputs"
SIGNATURE = "serving_default"
ONE_EXAMPLE = "one_example"
"""The signature for a batch of one: of known size, as TFLite wants it where a model loops over a sequence."""

EXTRAS = "assets.extra"
"""Where a SavedModel holds files that are no part of its graph."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """How an exported model is called.

    Attributes:
        answer: from the model's outputs to what is answered, by name.
        spec: tf.TensorSpec of a batch, where that is not what the model is trained on.
        encode: from such a batch to one of the model's inputs, by TensorFlow operations alone.
        files: name -> content of files to store next to the model, for clients that encode without TensorFlow.
    """

    answer: Callable[[Any], dict[str, Any]]
    spec: Any = None
    encode: Callable[[Any], Any] = lambda inputs: inputs
    files: Mapping[str, bytes] = field(default_factory=dict)


def _signature(spec: Any, batch: int | None, answer: Callable[[Any], Any]) -> Any:
    """A function of batches of the spec, whose inputs have the names of `_input_names`.

    Ragged inputs come as a batch of one example: in a larger one, shorter rows would be padded, and the padding counts.
    """
    flat = tf.nest.flatten(spec)
    if any(isinstance(one, tf.RaggedTensorSpec) for one in flat):
        batch = 1
    names = _input_names(spec)

    @tf.function(autograph=False)
    def serve(**inputs: Any) -> Any:
        given = [_as_trained(inputs[name], one) for name, one in zip(names, flat, strict=True)]
        return answer(tf.nest.pack_sequence_as(spec, given))

    return serve.get_concrete_function(
        **{
            name: tf.TensorSpec((batch, *one.shape[1:]), one.dtype, name=name)
            for name, one in zip(names, flat, strict=True)
        }
    )


def named_outputs(outputs: Any, names: Sequence[str]) -> dict[str, Any]:
    """What an exported model answers: `outputs`, or each of several outputs by its name.

    Args:
        names: of the outputs, as Keras has them, which calls the outputs of one layer alike.
    """
    if isinstance(outputs, Mapping) and all(map(tf.is_tensor, outputs.values())):
        return dict(outputs)
    flat = tf.nest.flatten(outputs)
    if len(flat) == 1:
        return {"outputs": flat[0]}
    if not len(names) == len({*names}) == len(flat):
        names = [f"output_{place}" for place in range(len(flat))]
    return dict(zip(names, flat, strict=True))


def _input_names(spec: Any) -> Sequence[str]:
    """What a signature calls the inputs, as TensorFlow flattens them: `inputs`, or each of several by its name.

    A SavedModel takes no other names than those of arguments, so in another one, such as `hours-per-week`, signs become
    underscores.
    """
    flat = tf.nest.flatten(spec)
    if flat == [spec]:
        return [INPUT]
    if not isinstance(spec, Mapping):
        return [f"{INPUT}_{place}" for place in range(len(flat))]
    wanted: list[str] = []
    for name in sorted(spec):
        parts = tf.nest.flatten(spec[name])
        wanted += [str(name)] if parts == [spec[name]] else [f"{name}_{place}" for place in range(len(parts))]
    names, taken = list(map(_as_argument, wanted)), set[str]()
    # Those that stay as they are come first. TensorFlow takes no two that differ in capitals alone.
    for place in sorted(range(len(names)), key=lambda place: names[place] != wanted[place]):
        name = names[place]
        possible = chain([name], (f"{name}_{number}" for number in count(1)))
        names[place] = next(each for each in possible if each.lower() not in taken)
        taken.add(names[place].lower())
    return names


def _as_argument(name: str) -> str:
    """A name for an argument of a function of TensorFlow's, which does not take `self`."""
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return found if found[:1].isalpha() and not keyword.iskeyword(found) and found != "self" else f"arg_{found}"


def _as_trained(tensor: Any, spec: Any) -> Any:
    if isinstance(spec, tf.RaggedTensorSpec):
        # Nobody else compares what is given with the signature; what has its shape already is not looked at again.
        of_any_shape = tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=[None] * len(tensor.shape))
        tensor = tf.ensure_shape(of_any_shape, tensor.shape)
        return tf.RaggedTensor.from_tensor(tensor, ragged_rank=spec.ragged_rank)
    return tensor


def save(model: Any, serving: Serving, spec: Any, directory: Path, *, job: str, name: Name | str) -> Path:
    """Writes `directory/<version>` whole or not at all, and returns it; the version is one above the highest.

    Its signature `serving_default` takes `inputs`, or each of several inputs by its name: a batch of what the model is
    trained on, or of what is served instead. `one_example` answers the same for one example of what the model is
    trained on.

    Args:
        spec: of a batch that the model is trained on.
        name: the option that says which model it is, for messages.

    Raises:
        NotSaved: the directory does not take it.
        UsageError: a SavedModel cannot hold the model.
    """
    forward, serves = rewritten(model), keras3.call_arguments(model, training=False)

    def answer(inputs: Any) -> Any:
        return serving.answer(forward(inputs, **serves))

    serve = _signature(serving.spec or spec, None, lambda inputs: answer(serving.encode(inputs)))
    serve_one = _signature(spec, 1, answer)
    module = tf.Module()
    module.model = model
    # Keras 3 reads them also where nothing is drawn, and leaves those of recurrent layers out of what is saved.
    module.draws = random_layers.states(model)
    try:
        with new_draft(directory, job=job) as draft:
            tf.saved_model.save(module, str(draft), signatures={SIGNATURE: serve, ONE_EXAMPLE: serve_one})
            for name, content in serving.files.items():
                (draft / EXTRAS).mkdir(exist_ok=True)
                (draft / EXTRAS / name).write_bytes(content)
            return publish(draft, directory)
    except AssertionError as error:
        if "'untracked' resource" not in str(error):
            raise
        raise UsageError(
            f"{name}: a layer uses {_untracked(str(error))}, which is no attribute of it, and a SavedModel leaves such "
            "out; set it as an attribute of the layer (self.table = table), or give no --export-dir"
        ) from None
    except (tf.errors.OpError, OSError) as error:
        raise NotSaved(
            f"export directory {directory}: the model cannot be written ({storage_reason(error)}); make room there; "
            "a job that is started again exports it, from its last checkpoint"
        ) from None


def _untracked(text: str) -> str:
    """What TensorFlow's message says that it cannot save."""
    found = re.search(r"referencing this tensor = <(?:tf\.Variable '([^':]+)|[\w.]*?(\w+) object )", text)
    return "a resource" if found is None else f"the variable {found[1]}" if found[1] else f"the {found[2]}"
