"""A user's model as a task: its own loss, and the metric that goes with it. Imports TensorFlow."""

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer import kerases
from dtj_trainer.data.source import Source
from dtj_trainer.errors import UsageError
from dtj_trainer.own.names import Name
from dtj_trainer.rewriting import rewritten
from dtj_trainer.tasks import Serving, Tensor
from dtj_trainer.tasks.heads import accuracy

_ACCURACY, _ERROR = "accuracy", "mean_absolute_error"
_CLASSES = ("sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy")
_NUMBERS = (
    "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_logarithmic_error",
    "huber", "log_cosh",
)  # fmt: skip
LOSSES = _CLASSES + _NUMBERS
"""What `--loss` may be; a compiled model may have any."""
_ACTIVATIONS = ("softmax", "sigmoid")


class OwnTask:
    """See `dtj_trainer.tasks.Task`. The exported model answers `outputs`, what the model itself gives."""

    serving: Serving | None = None

    def __init__(
        self, name: Name, build: Callable[[], Any], data: Source, *, loss: str | None, say: Callable[[str], object]
    ) -> None:
        """Builds the model once, to see what it is.

        Raises:
            UsageError: no Keras model, one that does not fit the data, or one of which nobody says the loss.
        """
        self._name = name
        self._build = build
        self._say = say
        model = self._new(data)
        self._loss = _Loss(name, model, loss)
        self.metrics = ("loss", *([self._loss.metric] if self._loss.metric else []))

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """The user's model; of the Keras that it was made with."""
        model = self._new(data)
        if keras.__name__ == "tf_keras" and kerases.of(model) is not keras:
            raise UsageError(
                f"{self._name}: a model of Keras 3, but this strategy needs one of tf_keras; "
                "make it with `import tf_keras as keras`"
            )
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas > 1 and (count := synchronise_batch_normalization(model)):
            # Else each replica would keep statistics of its own share of a batch.
            self._say(f"{self._name}: statistics of {count} BatchNormalization are made over all {replicas} replicas")
        return model

    def judge(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """The model's own loss, and its metric."""
        judged = {"loss": self._loss.each(outputs, labels)}
        if self._loss.metric == _ACCURACY:
            judged[_ACCURACY] = accuracy(outputs, labels, threshold=self._loss.threshold)
        elif self._loss.metric == _ERROR:
            judged[_ERROR] = _mean(tf.abs(outputs - tf.cast(_like(labels, outputs), outputs.dtype)))
        return judged

    def serve(self, outputs: Tensor) -> dict[str, Tensor]:
        """`outputs`."""
        return {"outputs": outputs}

    def _new(self, data: Source) -> Any:
        model = self._build()
        tf_keras_model = kerases.of(model) is not keras
        if not tf_keras_model and not isinstance(model, keras.Model):
            raise UsageError(
                f"{self._name}: returned a {type(model).__name__}; return a Keras model (of Keras 3 or tf_keras)"
            )
        wanted = data.input_spec.shape
        if not model.built:
            model.build(tuple(wanted))
        shape = model.input_shape
        if not isinstance(shape, tuple) or not wanted.is_compatible_with(shape):
            raise UsageError(
                f"{self._name}: the model takes {shape}, the examples of {data.name} come as {tuple(wanted)}; "
                "give the model that input, with None for the batch"
            )
        if len(getattr(model, "outputs", None) or [None]) != 1:
            raise UsageError(f"{self._name}: the model has {len(model.outputs)} outputs; give it one")
        return model


def synchronise_batch_normalization(model: Any) -> int:
    """Lets every BatchNormalization of a model take its statistics over all replicas; returns how many there are."""
    library = kerases.of(model)
    found = [
        layer
        for layer in model._flatten_layers(include_self=False, recursive=True)
        if isinstance(layer, library.layers.BatchNormalization)
    ]
    for layer in found:
        layer.synchronized = True
        if library is not keras:
            # The fused kernel of tf_keras knows one replica only.
            layer.fused = False
    return len(found)


class _Loss:
    """The loss of a user's model by example, and which metric is told beside it."""

    def __init__(self, name: Name, model: Any, asked: str | None) -> None:
        self._name = name
        given = asked or getattr(model, "loss", None) or None
        if asked is not None and asked not in LOSSES:
            raise UsageError(f"--loss={asked}: no such loss; this trainer knows {', '.join(LOSSES)}")
        if given is None:
            raise UsageError(f"{name}: the model is not compiled; compile it with a loss, or give --loss")
        loss = kerases.of(model).losses.get(given) if isinstance(given, str) else given
        if not callable(loss):
            raise UsageError(f"{name}: compiled with a {type(given).__name__} of losses; give the one output one loss")
        # A Loss of Keras' reduces what its `call` gives by example.
        self._function = rewritten(getattr(loss, "call", loss))
        kind = getattr(getattr(loss, "fn", loss), "__name__", "")
        # A loss that is compiled says itself what it takes; for one of --loss, the model's last layer does.
        logits = bool(getattr(loss, "_fn_kwargs", {}).get("from_logits"))
        if asked in _CLASSES:
            logits = _last_activation(model) not in _ACTIVATIONS
            self._function = partial(loss, from_logits=logits)
        self.threshold = 0.0 if logits else 0.5
        self.metric = _ACCURACY if kind in _CLASSES else _ERROR if kind in _NUMBERS else None

    def each(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """float32 [batch]."""
        losses = tf.cast(self._function(_like(labels, outputs), outputs), tf.float32)
        if losses.shape.rank == 0:
            raise UsageError(
                f"{self._name}: its loss gives one number for a whole batch; return one for each example, "
                "so that it can be divided by the global batch"
            )
        return _mean(losses)


def _like(labels: Tensor, outputs: Tensor) -> Tensor:
    """Labels [batch] as [batch, 1] beside outputs [batch, 1]: together they would be broadcast to [batch, batch]."""
    if outputs.shape.rank == 2 and outputs.shape[-1] == 1 and labels.shape.rank == 1:
        labels = labels[:, tf.newaxis]
        return tf.cast(labels, outputs.dtype)
    return labels


def _mean(values: Tensor) -> Tensor:
    """[batch] of [batch, ...]."""
    return tf.reduce_mean(tf.reshape(values, [tf.shape(values)[0], -1]), axis=1) if values.shape.rank > 1 else values


def _last_activation(model: Any) -> str:
    layer = model.layers[-1] if model.layers else model
    if type(layer).__name__ == "Softmax":
        return "softmax"
    return getattr(getattr(layer, "activation", None), "__name__", "")
