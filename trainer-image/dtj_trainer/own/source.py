"""A user's tf.data.Dataset as a source: endless full batches in an order that is a function of the seed.

Imports TensorFlow.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dtj_trainer.data.source import Stream
from dtj_trainer.errors import UsageError
from dtj_trainer.own.names import Name

_HELD_OUT_EVERY = 5
_WINDOW = 10_000
"""Examples that an epoch is shuffled over: all of a small data set, the nearest ones of a large one."""
_EPOCH_SEEDS = 1_000_003

TRAINING, HELD_OUT = "training", "held_out"


@dataclass(frozen=True, kw_only=True)
class _Parts:
    training: Stream
    held_out: Stream


class OwnData:
    """See `dtj_trainer.data.source.Source`.

    Every epoch goes over the user's dataset anew, shuffled with a seed of its own. A run that resumes goes straight
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
        self._function = function
        self._shuffle = shuffle
        self._parts = self._open()
        self.examples = self._count(self._parts.training, TRAINING)
        self.held_out_examples = self._count(self._parts.held_out, HELD_OUT)
        spec = self._parts.training.element_spec[0]
        self.input_spec = tf.TensorSpec((None, *spec.shape), spec.dtype)

    @tf.autograph.experimental.do_not_convert
    def batches(self, *, batch: int, seed: Any, first_step: int = 0) -> Stream:
        """See `Source`."""
        # The workers of parameter servers make their stream on their own machine, in a function of TensorFlow's,
        # where a dataset of the coordinator's cannot be reached.
        training = self._open().training if tf.inside_function() else self._parts.training
        epoch, offset = divmod(first_step * batch, self.examples)

        def examples(epoch: Any) -> Stream:
            # The seed of this function's graph, which a job's seed of 0 would make no seed at all.
            tf.random.set_seed(1)
            own = tf.cast(seed, tf.int64) * _EPOCH_SEEDS + epoch
            return training.shuffle(_WINDOW, seed=own, reshuffle_each_iteration=False) if self._shuffle else training

        stream = tf.data.Dataset.range(epoch, tf.int64.max).flat_map(examples).skip(offset)
        stream = stream.batch(batch, drop_remainder=True)
        # An end that nobody rules out would make all workers ask each other at every step whether it has come.
        stream = stream.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return stream.with_options(_options()).prefetch(tf.data.AUTOTUNE)

    def held_out(self, *, batch: int) -> Stream:
        """See `Source`."""
        return self._parts.held_out.batch(batch).with_options(_options())

    def _open(self) -> _Parts:
        made = self._function()
        if isinstance(made, Mapping):
            if set(made) != {TRAINING, HELD_OUT}:
                raise self._refusal(f"returned a mapping of {', '.join(map(str, made)) or 'nothing'}")
            training, held_out = made[TRAINING], made[HELD_OUT]
            self._check(training)
            self._check(held_out)
            if training.element_spec != held_out.element_spec:
                raise UsageError(
                    f"{self._origin}: examples of {training.element_spec} to learn from and of "
                    f"{held_out.element_spec} to be judged by; make them alike"
                )
            return _Parts(training=training, held_out=held_out)
        self._check(made)
        return _Parts(training=_every_fifth(made, held_out=False), held_out=_every_fifth(made, held_out=True))

    def _check(self, dataset: Any) -> None:
        if tf.inside_function():
            return  # it was checked when it was first made, and here its length is not known before it runs
        if not isinstance(dataset, tf.data.Dataset):
            raise self._refusal(f"returned a {type(dataset).__name__}")
        spec = dataset.element_spec
        if not (isinstance(spec, tuple) and len(spec) == 2 and all(isinstance(part, tf.TensorSpec) for part in spec)):
            raise self._refusal(f"gives elements of {spec}")
        inputs, labels = spec
        if labels.shape.rank not in (0, 1) or not all(isinstance(size, int) for size in inputs.shape):
            raise self._refusal(
                f"gives inputs of shape {inputs.shape} and labels of shape {labels.shape}, which looks like batches"
            )
        if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise UsageError(f"{self._origin}: the dataset has no end; leave .repeat() out, --epochs says how often")

    def _refusal(self, seen: str) -> UsageError:
        return UsageError(
            f"{self._origin}: {seen}; return a tf.data.Dataset of single examples (inputs, labels), each one tensor "
            f"of known shape, or two as {{'{TRAINING}': …, '{HELD_OUT}': …}}"
        )

    def _count(self, dataset: Stream, part: str) -> int:
        count = int(dataset.cardinality())
        if count < 0:
            try:
                count = int(dataset.reduce(tf.constant(0, tf.int64), lambda seen, *_: seen + 1))
            except tf.errors.OpError as error:
                # Which of TensorFlow's own nodes it was in is at the front and at the end; the cause stands last.
                said = " ".join(re.sub(r"{{.*?}}|\[\[.*?\]\]", "", str(error.message), flags=re.DOTALL).split())[-200:]
                raise UsageError(f"{self._origin}: reading the {part} examples failed: {said}; mend it") from error
        if count == 0:
            raise UsageError(f"{self._origin}: no {part} examples; give at least one")
        return count


def _every_fifth(dataset: Stream, *, held_out: bool) -> Stream:
    """What is held out of a dataset that is given whole, or the rest: by the place of each example in it."""

    def chosen(number: Any, _: Any) -> Any:
        return tf.equal(number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1, held_out)

    part = dataset.enumerate().filter(chosen).map(lambda _, example: example)
    whole = int(dataset.cardinality()) if not tf.inside_function() else tf.data.UNKNOWN_CARDINALITY
    if whole < 0:
        return part
    count = whole // _HELD_OUT_EVERY
    return part.apply(tf.data.experimental.assert_cardinality(count if held_out else whole - count))


def _options() -> Any:
    options = tf.data.Options()
    options.deterministic = True
    # Each worker takes its share of every global batch: the same batches whatever the number of workers.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return options
