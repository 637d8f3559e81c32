"""The models of all tables of parity: each by its name a function that makes it, compiled; and their data.

Most are one small model with one property that can go wrong in distributed training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import parity_parts as parts
import tensorflow as tf
from parity_data import CLASSES, DATA, FEATURES, LENGTH, VOCABULARY

layers, losses, optimizers, SGD = keras.layers, keras.losses, keras.optimizers, keras.optimizers.SGD
LossScale = optimizers.LossScaleOptimizer


def compiled(
    *made: Any,
    inputs: Any = None,
    optimizer: Any = None,
    loss: Any = "",
    kind: Any = None,
    of: Any = keras,
    **options: Any,
) -> Any:
    """A chain of layers; with SGD and the cross-entropy of one class for each, unless it is told otherwise.

    Args:
        kind: of model, if another than Sequential.
        of: which Keras.
        options: of `compile`.
    """
    model = of.Sequential([of.Input((FEATURES,)) if inputs is None else inputs, *made])
    model = model if kind is None else kind(model.inputs, model.outputs)
    loss = classes(of=of) if loss == "" else loss
    model.compile(optimizer=optimizer or of.optimizers.SGD(0.1), loss=loss, **options)
    return model


def classes(*, of: Any = keras, **options: Any) -> Any:
    """The loss of most models."""
    return of.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def dense(
    optimizer: Any = None, *between: Any, of: Any = keras, first: Any = (), last: Any = None, **options: Any
) -> Any:
    """The model that has no property but its optimizer, what is between its two layers, or what it is compiled with.

    Args:
        first: more arguments of its first layer.
    """
    hidden = of.layers.Dense(8, activation="tanh", name="first", **dict(first))
    return compiled(
        hidden, *between, last or of.layers.Dense(CLASSES, name="last"), optimizer=optimizer, of=of, **options
    )


def tagger(mask: bool, *between: Any, of: Any = keras, **options: Any) -> Any:
    """A class for each position of a sequence."""
    between = between or (of.layers.Dense(8, activation="tanh"),)
    embedding, last = of.layers.Embedding(VOCABULARY, 4, mask_zero=mask), of.layers.Dense(CLASSES)
    sgd = of.optimizers.SGD(0.2)
    return compiled(
        embedding, *between, last, inputs=of.Input((LENGTH,), dtype="int32"), optimizer=sgd, of=of, **options
    )


def penalized(kind: Any, *between: Any, optimizer: Any = None, **options: Any) -> Any:
    """One of a class of the user's, with penalties of weights and of activities."""
    penalty = keras.regularizers.L2(0.01)
    first = {"kernel_regularizer": penalty, "activity_regularizer": penalty}
    return dense(optimizer, *between, first=first, kind=kind, **options)


def valued(kind: Any = None, *, loss: Any = "mse", **options: Any) -> Any:
    """A number for each example; in a class of the user's with penalties and BatchNormalization."""
    last = layers.Dense(1)
    if kind is None:
        return dense(SGD(0.05, momentum=0.9), last=last, loss=loss, **options)
    return penalized(kind, layers.BatchNormalization(), optimizer=SGD(0.05), last=last, loss=loss, **options)


def squeezed(loss: Any) -> Any:
    """A number for each example, and no axis for it."""
    return dense(SGD(0.05), last=keras.Sequential([layers.Dense(1), layers.Reshape(())]), loss=loss)


def unbuilt(of: Any) -> Any:
    """A Sequential whose first call says what it takes."""
    model = of.Sequential([of.layers.Dense(8, activation="tanh"), of.layers.Dense(CLASSES)])
    model.compile(optimizer=of.optimizers.SGD(0.1), loss=classes(of=of))
    return model


def of_class(kind: Any, optimizer: Any = None, loss: Any = "") -> Any:
    model = kind()
    model.compile(optimizer=optimizer or SGD(0.1), loss=classes() if loss == "" else loss)
    return model


def mixed(policy: str, optimizer: Callable[[], Any], of: Any = keras) -> Any:
    of.mixed_precision.set_global_policy(policy)
    return dense(optimizer(), of=of)


def softmax(loss: Any) -> Any:
    """Of probabilities: a Dice loss of other outputs divides by sums that may be near zero."""
    return dense(last=layers.Dense(CLASSES, activation="softmax"), loss=loss)


def warm() -> Any:
    return SGD(optimizers.schedules.CosineDecay(0.0, 8, warmup_target=0.2, warmup_steps=4))


def several() -> Any:
    left, right = keras.Input((2,), name="left"), keras.Input((FEATURES - 2,), name="right")
    hidden = layers.Dense(8, activation="tanh")(layers.Concatenate()([left, right]))
    outputs = {"kind": layers.Dense(CLASSES, name="kind")(hidden), "size": layers.Dense(1, name="size")(hidden)}
    model = keras.Model({"left": left, "right": right}, outputs)
    of_each = {"loss": {"kind": classes(), "size": "mse"}, "loss_weights": {"kind": 1.0, "size": 0.5}}
    model.compile(optimizer=SGD(0.1), metrics={"kind": ["accuracy"]}, **of_each)
    return model


def schedule_free() -> Any:
    """Built here: Keras 3.15 builds it in `fit` so that it begins at zero, and not at the weights."""
    model = dense(optimizers.ScheduleFreeAdamW(0.01, epsilon=1e-5, weight_decay=0.1))
    model.optimizer.build(model.trainable_variables)
    return model


def decayed() -> Any:
    optimizer = optimizers.AdamW(0.05, epsilon=1e-5, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return dense(optimizer)


OUTSIDE: list[Any] = []
"""An optimizer, as a module may have one."""


def made_outside() -> Any:
    OUTSIDE.extend(() if OUTSIDE else [SGD(0.1)])
    return dense(OUTSIDE[0])


def ragged() -> Any:
    between = layers.Embedding(VOCABULARY, 4), layers.Lambda(lambda rows: tf.reduce_mean(rows, axis=1))
    return compiled(*between, layers.Dense(CLASSES), inputs=keras.Input((None,), dtype="int32", ragged=True))


# -- models of tf_keras ------------------------------------------------------------------------------------------


def branches(of: Any) -> Any:
    class Gate(of.layers.Layer):  # type: ignore[misc]
        """Decides by what it sees."""

        def call(self, inputs: Any) -> Any:
            if tf.reduce_sum(inputs) > 0:
                inputs = 2 * inputs
            return inputs

    return compiled(Gate(), of.layers.Dense(CLASSES), of=of)


def recurrent(of: Any) -> Any:
    init = of.initializers
    seeds = {"kernel_initializer": init.GlorotUniform(seed=2), "recurrent_initializer": init.Orthogonal(seed=3)}
    made = of.layers.Embedding(VOCABULARY, 4, init.RandomUniform(seed=1)), of.layers.LSTM(4, **seeds)
    last = of.layers.Dense(CLASSES, kernel_initializer=init.GlorotUniform(seed=4))
    return compiled(*made, last, inputs=of.Input((None,), dtype="int32", ragged=True), of=of)


OF_TF_KERAS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda of: dense(of.optimizers.Adam(0.01, epsilon=1e-5), of=of),
    "average": lambda of: dense(of.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.8), of=of),
    "branches": branches,
    "global_clipnorm": lambda of: dense(of.optimizers.SGD(0.5, global_clipnorm=0.1), of=of),
    "loss_scale_by_hand": lambda of: dense(
        of.mixed_precision.LossScaleOptimizer(of.optimizers.SGD(0.1), dynamic_growth_steps=3), of=of
    ),
    "masked": lambda of: tagger(True, of=of),
    "mixed_float16": lambda of: mixed("mixed_float16", lambda: of.optimizers.SGD(0.1, momentum=0.9), of),
    "ragged": recurrent,
    "weights": lambda of: dense(of=of, loss_weights=[0.3], metrics=["accuracy"]),
    "without_input": unbuilt,
}


def of_tf_keras(make: Callable[[Any], Any]) -> Any:
    import tf_keras

    return make(tf_keras)


# -- the table ---------------------------------------------------------------------------------------------------

MODELS: dict[str, Callable[[], Any]] = {
    # Optimizers.
    "adam": lambda: dense(optimizers.Adam(0.01, epsilon=1e-5)),
    "momentum": lambda: dense(SGD(0.1, momentum=0.9, nesterov=True)),
    "penalties": lambda: dense(first={"kernel_regularizer": "l2", "activity_regularizer": keras.regularizers.L2(0.01)}),
    "schedule": lambda: dense(warm()),
    "mixed_float16": lambda: mixed("mixed_float16", lambda: SGD(0.1, momentum=0.9)),
    "mixed_float16_schedule": lambda: mixed("mixed_float16", warm),
    # Its scale overflows for some steps, which are skipped.
    "mixed_float16_overflow": lambda: mixed("mixed_float16", lambda: LossScale(SGD(0.1), initial_scale=2.0**22)),
    "mixed_bfloat16": lambda: mixed("mixed_bfloat16", lambda: SGD(0.1)),
    "loss_scale_by_hand": lambda: dense(LossScale(optimizers.Adam(0.01, epsilon=1e-5))),
    # Beyond what float32 can hold: 2 ** 127, then the next is infinite, and Keras never changes a weight again.
    "loss_scale_that_grows": lambda: dense(LossScale(SGD(0.1), initial_scale=2.0**126, dynamic_growth_steps=2)),
    "loss_scale_factor": lambda: dense(SGD(0.1, loss_scale_factor=1024.0)),
    "scaled_and_clipped": lambda: dense(LossScale(SGD(0.1, global_clipnorm=0.5), dynamic_growth_steps=2)),
    "scaled_and_averaged": lambda: dense(
        LossScale(SGD(0.1, clipnorm=0.2, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=3))
    ),
    "clipnorm": lambda: dense(SGD(0.5, clipnorm=0.05)),
    "clipvalue": lambda: dense(SGD(0.5, clipvalue=0.01)),
    "global_clipnorm": lambda: dense(SGD(0.5, global_clipnorm=0.1)),
    "rate_as_a_function": lambda: dense(SGD(lambda: 0.2)),
    "average": lambda: dense(SGD(0.5, use_ema=True, ema_momentum=0.8)),
    "average_that_overwrites": lambda: dense(SGD(0.5, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=5)),
    "weight_decay": decayed,
    "weight_decay_everywhere": lambda: dense(optimizers.AdamW(0.05, epsilon=1e-5, weight_decay=0.5)),
    "several_optimizers": lambda: dense(
        optimizers.MultiOptimizer({".*kernel": SGD(0.1), ".*bias": optimizers.Adam(0.1)})
    ),
    "made_outside": made_outside,
    "accumulation": lambda: dense(optimizers.Adam(0.01, epsilon=1e-5, gradient_accumulation_steps=4)),
    "accumulation_with_all": lambda: dense(
        LossScale(
            optimizers.AdamW(
                0.05,
                epsilon=1e-5,
                gradient_accumulation_steps=3,
                use_ema=True,
                ema_momentum=0.5,
                global_clipnorm=0.05,
                weight_decay=0.1,
            )
        )
    ),
    "constraint": lambda: dense(
        SGD(0.5),
        first={"kernel_constraint": keras.constraints.MaxNorm(0.5), "bias_constraint": keras.constraints.NonNeg()},
    ),
    "keras_adadelta": lambda: dense(optimizers.Adadelta(1.0)),
    "keras_adafactor": lambda: dense(optimizers.Adafactor(0.05)),
    "keras_adagrad": lambda: dense(optimizers.Adagrad(0.05)),
    "keras_adamax": lambda: dense(optimizers.Adamax(0.01, epsilon=1e-5)),
    "keras_ftrl": lambda: dense(optimizers.Ftrl(0.05, l1_regularization_strength=0.001)),
    "keras_lamb": lambda: dense(optimizers.Lamb(0.01, epsilon=1e-5, weight_decay=0.1)),
    "keras_lion": lambda: dense(optimizers.Lion(0.001, weight_decay=0.1)),
    "keras_muon": lambda: dense(optimizers.Muon(0.01, epsilon=1e-5)),
    "keras_nadam": lambda: dense(optimizers.Nadam(0.01, epsilon=1e-5)),
    "keras_rmsprop": lambda: dense(optimizers.RMSprop(0.01, momentum=0.9, centered=True, epsilon=1e-5)),
    "keras_schedulefreeadamw": schedule_free,
    # Losses.
    "positions": lambda: tagger(False),
    "masked": lambda: tagger(True),
    "masked_by_weight": lambda: tagger(True, loss=classes(reduction="mean_with_sample_weight")),
    "masked_sum": lambda: tagger(True, loss=classes(reduction="sum"), loss_weights=0.01),
    "ignore_class": lambda: tagger(False, loss=classes(ignore_class=-1)),
    "summed": lambda: dense(loss=classes(reduction="sum"), loss_weights=0.05),
    "loss_weights": lambda: dense(loss_weights=0.3),
    "plain": dense,
    "mean_by_weight": lambda: dense(loss=classes(reduction="mean_with_sample_weight"), weighted_metrics=["accuracy"]),
    "weights_not_reduced": lambda: dense(loss=classes(reduction="none")),
    "multi_label": lambda: dense(loss=losses.BinaryCrossentropy(from_logits=True)),
    "own_loss": lambda: dense(loss=parts.Cubed()),
    "one_number": lambda: dense(loss=lambda y, y_pred: tf.reduce_mean(parts.cross_entropy(y, y_pred))),
    "one_sum": lambda: dense(loss=lambda y, y_pred: 0.05 * tf.reduce_sum(parts.cross_entropy(y, y_pred))),
    "of_two_losses": lambda: valued(loss=parts.OfTwo()),
    "single_numbers": lambda: squeezed("huber"),
    "single_numbers_compared": lambda: squeezed("cosine_similarity"),
    "own_call": lambda: valued(loss=parts.OwnCall()),
    "dice_of_the_batch": lambda: softmax(losses.Dice()),
    "dice_of_each": lambda: softmax(losses.Dice(axis=1)),
    "circle": lambda: dense(loss=losses.Circle(gamma=1.0)),
    "several": several,
    # Layers and types.
    "bfloat16_outputs": lambda: dense(None, layers.Dense(CLASSES), last=layers.Activation("linear", dtype="bfloat16")),
    "float64_outputs": lambda: dense(None, layers.Dense(CLASSES), last=layers.Activation("linear", dtype="float64")),
    "mixed_weights": lambda: dense(last=layers.Dense(CLASSES, dtype="float64")),
    "subclassed": lambda: of_class(parts.Net),
    "without_input": lambda: unbuilt(keras),
    "added_loss_alone": lambda: of_class(parts.Rebuilds, loss=None),
    "activities": lambda: dense(None, parts.Adds(keras.ops.mean)),
    "activities_summed": lambda: dense(None, parts.Adds(keras.ops.sum)),
    "bare_variable": lambda: dense(None, parts.Levels()),
    "watched_layer": lambda: dense(None, parts.Watches()),
    "normalised_penalties": lambda: dense(
        None,
        layers.BatchNormalization(),
        first={"activity_regularizer": keras.regularizers.L2(0.05)},
        last=layers.Dense(CLASSES, activity_regularizer=keras.regularizers.L1(0.05)),
    ),
    "normalised_nested": lambda: dense(
        None,
        keras.Sequential([layers.Dense(8), layers.BatchNormalization(), layers.ReLU()]),
        layers.BatchNormalization(),
    ),
    "normalised_raw": lambda: compiled(layers.BatchNormalization(), layers.Dense(CLASSES)),
    "normalised_masked": lambda: tagger(True, layers.BatchNormalization()),
    "bias_without_gradient": lambda: of_class(parts.Scaled, optimizers.Adam(0.01, epsilon=1e-4)),
    "own_state": lambda: compiled(parts.Centred(), layers.Dense(CLASSES)),
    "counting": lambda: compiled(parts.Counted(), layers.Dense(CLASSES)),
    "unseeded": lambda: compiled(parts.Noisy(), layers.Dense(CLASSES)),
    "stateful": lambda: compiled(
        layers.LSTM(4, stateful=True), layers.Dense(CLASSES), inputs=keras.Input(batch_shape=(24, LENGTH, 1))
    ),
    "ragged": ragged,
    "of_images": lambda: compiled(
        layers.ReLU(), layers.Flatten(), layers.Dense(1), inputs=keras.Input((8, 64)), optimizer=SGD(0.001), loss="mse"
    ),
    # Metrics.
    "metric_of_maxima": lambda: dense(metrics=[parts.Largest(), parts.Smallest(), parts.Spread()]),
    "metric_of_the_last": lambda: dense(metrics=[parts.Newest()]),
    "metrics": lambda: dense(
        metrics=[
            "accuracy",
            keras.metrics.MeanIoU(CLASSES, sparse_y_pred=False, name="iou"),
            parts.Positive(),
            parts.Hits(),
        ],
        weighted_metrics=[keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")],
    ),
    "area_under_curve": lambda: dense(
        last=layers.Dense(1, "sigmoid"),
        loss="binary_crossentropy",
        metrics=[keras.metrics.AUC(name="area"), keras.metrics.Precision(name="precision")],
    ),
    # Methods.
    "compute_loss": lambda: dense(kind=parts.OwnLoss),
    "compute_loss_alone": lambda: penalized(parts.LossAlone, layers.BatchNormalization(), loss=None),
    "compute_loss_summed": lambda: dense(
        kind=parts.computing("Summed", lambda y, y_pred: 0.05 * keras.ops.sum(parts.cross_entropy(y, y_pred))),
        loss=None,
    ),
    "compute_loss_masked": lambda: tagger(True, kind=parts.OwnLoss),
    "compute_loss_of_pairs": lambda: dense(kind=parts.computing("Contrasted", parts.contrasted), loss=None),
    "compute_loss_that_leaves_out": lambda: dense(kind=parts.computing("LeftOut", parts.left_out), loss=None),
    "train_step": lambda: dense(kind=parts.OwnStep),
    "own_means": lambda: valued(parts.stepping("OwnMeans", parts.own_means)),
    "listed_means": lambda: valued(parts.stepping("ListedMeans", parts.listed_means)),
    "own_sums": lambda: valued(parts.stepping("Sums", lambda model, made, x, y: 0.01 * tf.reduce_sum((y - made) ** 2))),
    "step_that_leaves_out": lambda: valued(
        parts.stepping(
            "LeavesOut", lambda model, made, x, y: tf.reduce_mean(tf.boolean_mask((y - made) ** 2, x[:, 0] > 0))
        )
    ),
    "step_of_pairs": lambda: valued(
        parts.stepping(
            "Pairs", lambda model, made, x, y: tf.reduce_mean((parts.pairs_of(made) - parts.pairs_of(y)) ** 2)
        )
    ),
    "own_root": lambda: valued(
        parts.stepping("OwnRoot", lambda model, made, x, y: tf.sqrt(tf.reduce_mean((y - made) ** 2)))
    ),
    "own_root_of_noise": lambda: valued(
        parts.stepping(
            "RootOfNoise",
            lambda model, made, x, y: tf.sqrt(
                tf.reduce_mean((y + keras.random.normal(tf.shape(y), seed=1) - made) ** 2)
            ),
        )
    ),
    "guided_evaluation": lambda: penalized(
        parts.Guided,
        metrics=["accuracy"],
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(name="cost", from_logits=True)],
    ),
    "extended_evaluation": lambda: penalized(parts.Extended, metrics=["accuracy"]),
    "own_evaluation": lambda: penalized(parts.Own),
    "evaluation_of_single_batches": lambda: penalized(parts.Unshown),
    # Models of tf_keras.
    "legacy_optimizer": lambda: of_tf_keras(lambda of: dense(of.optimizers.legacy.SGD(0.1), of=of)),
    **{f"tf_keras_{name}": lambda make=make: of_tf_keras(make) for name, make in OF_TF_KERAS.items()},
}
globals().update(DATA | MODELS)
