"""A source that gives each training example the weight of its class. Imports TensorFlow."""

from collections.abc import Callable
from functools import partial
from typing import Any

import tensorflow as tf

from dtj_trainer.data.sharding import Divisible, Share
from dtj_trainer.data.source import Source, Stream
from dtj_trainer.errors import UsageError

_AT_ONCE = 512
"""Held-out examples whose labels are looked at together."""


def weighted(source: Source, weights: tuple[float, ...], name: str) -> Source:
    """The same examples; those to train on come with weights. Held-out examples keep none, as in Keras' `fit`.

    Args:
        weights: of class 0, 1, ...; not negative.
        name: of the option and its value, for messages.

    Raises:
        UsageError: the examples have weights already, or labels that are not one class for each example.
    """
    if isinstance(source, Divisible):
        return _DivisibleClassWeights(source, weights, name)
    return ClassWeights(source, weights, name)


class ClassWeights:
    """See `dtj_trainer.data.source.Source`. What this class does not define is that of the source within."""

    weighted = True

    def __init__(self, source: Source, weights: tuple[float, ...], name: str) -> None:
        self._source = source
        labels, *others = next(iter(source.validation(batch=1)))[1:]
        if others:
            raise UsageError(f"{name}: the examples have weights already; multiply them by those of the classes")
        if isinstance(labels, dict | tuple | list) or labels.shape.rank not in (1, 2):
            raise UsageError(f"{name}: needs one class for each example; give the examples weights of their own")
        if labels.shape.rank == 2 and labels.shape[1] not in (1, len(weights)):
            raise UsageError(f"{name}: {len(weights)} weights, but the labels have {labels.shape[1]} classes")
        for _, some in source.validation(batch=_AT_ONCE):
            if unknown := sorted({int(one) for one in _classes(some)} - set(range(len(weights)))):
                raise UsageError(f"{name}: label {unknown[0]} has no weight; give each class one")
        self._add: Callable[[Any, Any], Any] = partial(_add, weights=weights, name=name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def batches(self, *, batch: int, seed: Any, first_step: int = 0, offset: int = 0) -> Stream:
        """See `Source`."""
        batches = self._source.batches(batch=batch, seed=seed, first_step=first_step, offset=offset)
        return batches.map(self._add, deterministic=True)


class _DivisibleClassWeights(ClassWeights):
    def share_of_batches(self, *, batch: int, seed: Any, first_step: int, share: Share, offset: int = 0) -> Stream:
        """See `Divisible`."""
        part = self._source.share_of_batches(  # type: ignore[attr-defined]
            batch=batch, seed=seed, first_step=first_step, share=share, offset=offset
        )
        return part.map(self._add, deterministic=True)


def _classes(labels: Any) -> Any:
    """int32 [batch], by Keras' rule: a row of several numbers is the class of the largest."""
    if labels.shape.rank == 2 and labels.shape[1] != 1:
        return tf.argmax(labels, axis=1, output_type=tf.int32)
    flat = tf.reshape(labels, [-1])
    return tf.cast(tf.round(flat) if flat.dtype.is_floating else flat, tf.int32)


def _add(inputs: Any, labels: Any, *, weights: tuple[float, ...], name: str) -> Any:
    """A batch with float32 weights [batch]."""
    classes = _classes(labels)
    known = tf.logical_and(classes >= 0, classes < len(weights))
    check = tf.debugging.Assert(
        tf.reduce_all(known), [f"{name}: a label has no weight", tf.boolean_mask(classes, tf.logical_not(known))]
    )
    with tf.control_dependencies([check]):
        return inputs, labels, tf.gather(tf.constant(weights, tf.float32), classes)
