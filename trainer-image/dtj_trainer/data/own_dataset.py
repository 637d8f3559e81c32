"""A user's two tf.data.Datasets as a source: endless full batches in an order that is a function of the seed.

What is held out is the user's to say: nothing shows whether a dataset that is read again has the same examples in the
same places, so none is divided here. Imports TensorFlow.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dtj_trainer.autograph import rewritten_within
from dtj_trainer.config.entry_points import Name
from dtj_trainer.data.held_out_examples import BATCH, Digest, Reading
from dtj_trainer.data.shuffling import after_seen, shuffled
from dtj_trainer.data.source import Stream, endless, stream_options
from dtj_trainer.errors import UsageError

_FIRST = 256
"""Examples to learn from whose order is compared between workers."""

_AGAIN_WITHIN_SECONDS = 30.0
"""A function that takes longer is not called a second time to see whether it gives the same; nor are held-out examples
that take longer read a second time before the training."""

_PARTS = ("inputs", "labels", "weights")
TRAINING, HELD_OUT = "training", "held_out"


@dataclass(frozen=True, kw_only=True)
class _Parts:
    training: Stream
    validation: Stream


class OwnData:
    """See `dtj_trainer.data.source.Source`.

    Every epoch goes over the user's dataset again, shuffled with a seed of its own. A run that resumes goes straight
    to its epoch and reads past what it has seen of it.
    """

    classes: tuple[str, ...] = ()

    def __init__(self, name: Name, function: Callable[[], Any], *, shuffle: bool) -> None:
        """Calls the function, and counts the examples where the dataset does not know their number.

        Raises:
            UsageError: what it returns is not as docs/bring-your-own.md says.
        """
        self.name = str(name)
        self._origin = name
        self._function = rewritten_within(function)
        self._shuffle = shuffle
        began = time.monotonic()
        self._parts = self._open()
        seconds = time.monotonic() - began
        again = self._open() if seconds < _AGAIN_WITHIN_SECONDS else self._parts
        self.order = _order(self._parts.training, again.training)
        """Of the first examples that are trained on, and of all that are held out; the same on all workers."""
        self.examples = self._count(self._parts.training, TRAINING)
        self.validation_examples = self._count(self._parts.validation, HELD_OUT)
        self.validation_digest = self._read_held_out(again)
        """Of the first reading; None: they cannot be read."""
        if self.validation_digest:
            self.order += f" {self.validation_digest}"
        self.weighted = len(self._parts.training.element_spec) == 3
        self.input_spec = _named(_in_batches(self._parts.training, 1).element_spec[0])

    @tf.autograph.experimental.do_not_convert
    def batches(self, *, batch: int, seed: Any, first_step: int = 0, offset: int = 0) -> Stream:
        """See `Source`."""
        # The workers of parameter servers make their stream on their own machine, in a function of TensorFlow's,
        # where a dataset of the coordinator's cannot be reached.
        training = self._open().training if tf.inside_function() else self._parts.training

        def epoch(number: Any) -> Stream:
            return shuffled(training, seed=seed, epoch=number) if self._shuffle else training

        stream = after_seen(first_step * batch + offset, examples=self.examples, epoch=epoch)
        return endless(_in_batches(stream, batch, drop_remainder=True))

    def validation(self, *, batch: int) -> Stream:
        """See `Source`."""
        return _in_batches(self._parts.validation, batch).with_options(stream_options())

    def _read_held_out(self, again: _Parts) -> Digest | None:
        """Reads all held-out examples, and once more if that is quick.

        Raises:
            UsageError: the second reading differs from the first.
        """
        began = time.monotonic()
        try:
            first = Reading(self.validation(batch=BATCH), batch=BATCH).finish()
            if time.monotonic() - began > _AGAIN_WITHIN_SECONDS:
                return first
            # Some datasets differ from one pass to the next, others from one call of the function to the next.
            others = [
                Reading(_in_batches(parts.validation, BATCH).with_options(stream_options()), batch=BATCH).finish()
                for parts in (self._parts, again)
            ]
        except tf.errors.OpError:
            # Who evaluates them says why.
            return None
        if any(other != first for other in others):
            raise UsageError(
                f"{self._origin}: the {HELD_OUT} examples change from one reading to the next, so that the model "
                "would be judged by examples that it was trained on; take them out of data in a fixed order, as by "
                f"shuffle(…, seed=…, reshuffle_each_iteration=False), and leave random augmentation to '{TRAINING}'"
            )
        return first

    def _open(self) -> _Parts:
        made = self._function()
        if not isinstance(made, Mapping):
            one = isinstance(made, tf.data.Dataset)
            raise self._refusal(f"returned {'one dataset' if one else f'a {type(made).__name__}'}")
        if set(made) != {TRAINING, HELD_OUT}:
            raise self._refusal(f"returned a mapping of {', '.join(map(str, made)) or 'nothing'}")
        training, validation = made[TRAINING], made[HELD_OUT]
        self._check(training)
        self._check(validation)
        if training.element_spec != validation.element_spec:
            raise UsageError(
                f"{self._origin}: examples of {training.element_spec} to learn from and of "
                f"{validation.element_spec} to be judged by; make them alike"
            )
        return _Parts(training=training, validation=validation)

    def _check(self, dataset: Any) -> None:
        if tf.inside_function():
            return  # it was checked when it was first made, and here its length is not known before it runs
        if not isinstance(dataset, tf.data.Dataset):
            raise self._refusal(f"returned a mapping with a {type(dataset).__name__}")
        spec = dataset.element_spec
        if not (isinstance(spec, tuple) and len(spec) in (2, 3)):
            raise self._refusal(f"gives elements of {spec}")
        for number, parts in enumerate(spec):
            for part in tf.nest.flatten(parts):
                if isinstance(part, tf.RaggedTensorSpec) and number == 0:
                    continue
                if not isinstance(part, tf.TensorSpec):
                    ragged = isinstance(part, tf.RaggedTensorSpec)
                    remedy = ".to_tensor(shape=...) or padding to one length" if ragged else "tf.sparse.to_dense"
                    raise UsageError(
                        f"{self._origin}: gives {_PARTS[number]} with a {type(part).__name__}, which the trainer does "
                        f"not take there; make them dense, as by {remedy}"
                    )
                if part.shape.rank is None:
                    raise UsageError(
                        f"{self._origin}: gives {_PARTS[number]} of unknown shape, as numpy_function and py_function "
                        "make them; say the shape of each tensor, by tensor.set_shape([...]) in the same function"
                    )
                if not part.shape.is_fully_defined():
                    raise self._refusal(f"gives a tensor of shape {part.shape}, which looks like batches")
        if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise UsageError(f"{self._origin}: the dataset has no end; leave .repeat() out, --epochs says how often")

    def _refusal(self, seen: str) -> UsageError:
        return UsageError(
            f"{self._origin}: {seen}; return {{'{TRAINING}': …, '{HELD_OUT}': …}}, two tf.data.Datasets of single "
            "examples (inputs, labels) or (inputs, labels, weights), tensors of known shape or dicts and tuples of "
            "them, such as data.skip(100) and data.take(100)"
        )

    def _count(self, dataset: Stream, part: str) -> int:
        count = int(dataset.cardinality())
        if count < 0:
            try:
                count = int(dataset.reduce(tf.constant(0, tf.int64), lambda seen, *_: seen + 1))
            except tf.errors.OpError as error:
                # Which of TensorFlow's own nodes it was in is at the front and at the end; the cause stands last.
                message = " ".join(re.sub(r"{{.*?}}|\[\[.*?\]\]", "", str(error.message), flags=re.DOTALL).split())[
                    -200:
                ]
                raise UsageError(
                    f"{self._origin}: reading the {part} examples failed: {message}; fix it", restart_may_help=True
                ) from error
        if count == 0:
            raise UsageError(f"{self._origin}: no {part} examples; give at least one")
        return count


def _order(*readings: Stream) -> str:
    """A digest of the order of the first examples; without the inputs where they differ between two readings.

    What cannot be read is left to who reads all of it, and says why.
    """
    try:
        first, again = (
            Reading(_in_batches(one.take(_FIRST), _FIRST).with_options(stream_options()), batch=_FIRST).finish()
            for one in readings
        )
    except tf.errors.OpError:
        return ""
    return f"{first.examples} {first.labels} {first.inputs if first.inputs == again.inputs else ''}"


def _in_batches(dataset: Stream, size: int, *, drop_remainder: bool = False) -> Stream:
    """Batches of examples, ragged ones as ragged tensors."""
    # The rows of a ragged tensor of rank 1 are dense tensors of unknown length to `map` and `filter`.
    if all(isinstance(part, tf.TensorSpec) and part.shape.is_fully_defined() for part in _specs(dataset)):
        return dataset.batch(size, drop_remainder=drop_remainder)
    return dataset.ragged_batch(size, drop_remainder=drop_remainder)


def _specs(dataset: Stream) -> list[Any]:
    specs: list[Any] = tf.nest.flatten(dataset.element_spec)
    return specs


def _named(spec: Any) -> Any:
    """The specification of a batch of inputs, named as the exported model takes them."""
    if isinstance(spec, Mapping):
        return {
            name: tf.TensorSpec(one.shape, one.dtype, name=str(name)) if isinstance(one, tf.TensorSpec) else one
            for name, one in spec.items()
        }
    return spec
