"""The end of a model, which follows from what is to be learned: units, loss, metrics, and the activation served.

| to be learned | units | activation | loss | metric |
|---|---|---|---|---|
| a number | 1 | none | squared error | absolute error |
| one of two classes | 1 | sigmoid | binary cross-entropy | accuracy |
| one of more classes | classes | softmax | categorical cross-entropy, sparse or not by the labels | accuracy |

Models give raw outputs, before the activation: a cross-entropy of these is exact where one of probabilities that have
been rounded to 0 or 1 is not. Imports TensorFlow.
"""

import math
from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf

Tensor = Any


class Head(Protocol):
    """Loss, metrics and answer of one kind of label. All of it is by example: [batch] in, [batch] out."""

    @property
    def units(self) -> int:
        """Raw outputs of the model, its last axis."""
        ...

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names that `compute_metrics` gives, in the order in which they are shown."""
        ...

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Each metric of each example, float32 [batch], of raw outputs [batch, units]."""
        ...

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """What is answered for raw outputs [batch, units], by name."""
        ...


class Regression:
    """A number. Labels float [batch] or [batch, 1]; both metrics in their unit, the loss in its square."""

    units = 1
    metrics: tuple[str, ...] = ("loss", "mean_absolute_error")

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Squared error, absolute error."""
        errors = outputs[:, 0] - tf.cast(flat(labels), outputs.dtype)
        return {"loss": tf.square(errors), "mean_absolute_error": tf.abs(errors)}

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """`value` float32 [batch]."""
        return {"value": outputs[:, 0]}


class Binary:
    """One of two classes. Labels 0 or 1, [batch] or [batch, 1], or float [batch, 2] with a share for each."""

    units = 1
    metrics: tuple[str, ...] = ("loss", "accuracy")

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Binary cross-entropy, and whether the likelier class is the right one."""
        logits = outputs[:, 0]
        wanted = tf.cast(flat(labels), logits.dtype)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=wanted, logits=logits)
        # Of a class that none of the examples had that the classes were counted of; as TensorFlow does it for more.
        losses = tf.where(wanted > 1, tf.constant(math.nan, losses.dtype), losses)
        return {"loss": losses, "accuracy": right(outputs, wanted, threshold=0.0)[:, 0]}

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """`probabilities` float32 [batch, 2] and `class` int64 [batch], as for more classes."""
        logits = outputs[:, :1]
        return {
            "probabilities": tf.concat([tf.sigmoid(-logits), tf.sigmoid(logits)], axis=1),
            "class": tf.cast(logits[:, 0] > 0, tf.int64),
        }


class MultiClass:
    """One of several classes. Labels [batch] or [batch, 1] as numbers of classes, or [batch, classes] as shares."""

    metrics: tuple[str, ...] = ("loss", "accuracy")

    def __init__(self, classes: int) -> None:
        self.units = classes

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Categorical cross-entropy, and whether the likeliest class is the right one."""
        if is_sparse(labels):
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.cast(flat(labels), tf.int64), logits=outputs
            )
        else:
            losses = tf.nn.softmax_cross_entropy_with_logits(labels=tf.cast(labels, outputs.dtype), logits=outputs)
        return {"loss": losses, "accuracy": right(outputs, labels)}

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """`probabilities` float32 [batch, classes] and `class` int64 [batch]."""
        return {"probabilities": tf.nn.softmax(outputs), "class": tf.argmax(outputs, axis=-1)}


def head_for(classes: int) -> Head:
    """The head for this many classes; 0: the label is a number."""
    if classes == 0:
        return Regression()
    return Binary() if classes == 2 else MultiClass(classes)


def is_sparse(labels: Tensor) -> bool:
    """Whether labels are numbers of classes, rather than a share of each class."""
    return bool(labels.shape.rank == 1 or labels.shape[-1] == 1)


def right(outputs: Tensor, labels: Tensor, *, threshold: float = 0.5, binary: bool = False) -> Tensor:
    """1.0 where the class is right, 0.0 where it is not, float32, by position where there are positions.

    Args:
        outputs: [batch, ..., units].
        labels: [batch, ...] or [batch, ..., 1] as numbers of classes, or [batch, ..., units].
        threshold: above which a unit says yes, where each stands for itself.
        binary: whether each unit stands for itself.
    """
    if binary or outputs.shape[-1] == 1:
        if labels.shape.rank == outputs.shape.rank - 1:
            labels = labels[..., tf.newaxis]
        found = tf.equal(tf.cast(outputs, tf.float32) > threshold, tf.cast(labels, tf.float32) > 0.5)
    else:
        if labels.shape.rank < outputs.shape.rank:
            classes = labels
        elif labels.shape[-1] == 1:
            classes = tf.squeeze(labels, -1)
        else:
            classes = tf.argmax(labels, axis=-1)
        found = tf.equal(tf.argmax(outputs, axis=-1), tf.cast(classes, tf.int64))
    return tf.cast(found, tf.float32)


def flat(labels: Tensor) -> Tensor:
    """[batch] of [batch] or [batch, 1]; of [batch, 2], the share of the second class."""
    return labels[:, -1] if labels.shape.rank == 2 else labels
