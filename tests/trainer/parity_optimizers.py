"""Models of the table in `parity_cases.py` whose optimizers have something special."""

from __future__ import annotations

from typing import Any

import keras
from parity_data import dense


def adam() -> Any:
    return dense(keras.optimizers.Adam(0.01, epsilon=1e-5))


def adam_uneven() -> Any:
    return adam()


def momentum() -> Any:
    return dense(keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True))


def penalties() -> Any:
    return dense(keras.optimizers.SGD(0.1), kernel_regularizer="l2", activity_regularizer=keras.regularizers.L2(0.01))


def schedule() -> Any:
    return dense(
        keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.0, 8, warmup_target=0.2, warmup_steps=4))
    )


def mixed_float16() -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    return dense(keras.optimizers.SGD(0.1, momentum=0.9))


def mixed_float16_schedule() -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    return schedule()


def mixed_float16_overflow() -> Any:
    """Its scale overflows for some steps, which are skipped."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    return dense(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**22))


def mixed_bfloat16() -> Any:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    return dense(keras.optimizers.SGD(0.1))


def loss_scale_by_hand() -> Any:
    return dense(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01, epsilon=1e-5)))


def loss_scale_that_grows() -> Any:
    """Beyond what float32 can hold: 2 ** 127, then the next is infinite, and Keras never changes a weight again."""
    inner = keras.optimizers.SGD(0.1)
    return dense(keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**126, dynamic_growth_steps=2))


def loss_scale_factor() -> Any:
    return dense(keras.optimizers.SGD(0.1, loss_scale_factor=1024.0))


def tf_keras_mixed_float16() -> Any:
    import tf_keras

    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    return dense(tf_keras.optimizers.SGD(0.1, momentum=0.9), tf_keras)


def tf_keras_loss_scale_by_hand() -> Any:
    import tf_keras

    inner = tf_keras.optimizers.SGD(0.1)
    return dense(tf_keras.mixed_precision.LossScaleOptimizer(inner, dynamic_growth_steps=3), tf_keras)


def clipnorm() -> Any:
    return dense(keras.optimizers.SGD(0.5, clipnorm=0.05))


def clipvalue() -> Any:
    return dense(keras.optimizers.SGD(0.5, clipvalue=0.01))


def global_clipnorm() -> Any:
    return dense(keras.optimizers.SGD(0.5, global_clipnorm=0.1))


def tf_keras_global_clipnorm() -> Any:
    import tf_keras

    return dense(tf_keras.optimizers.SGD(0.5, global_clipnorm=0.1), tf_keras)


def rate_as_a_function() -> Any:
    return dense(keras.optimizers.SGD(lambda: 0.2))


def shuffled_by_itself() -> Any:
    return momentum()


def nan_loss() -> Any:
    return momentum()


def average() -> Any:
    return dense(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.8))


def average_that_overwrites() -> Any:
    return dense(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=5))


def tf_keras_average() -> Any:
    import tf_keras

    return dense(tf_keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.8), tf_keras)


def named() -> Any:
    """What the command line names takes the place of this."""
    return momentum()


def weight_decay_everywhere() -> Any:
    return dense(keras.optimizers.AdamW(0.05, epsilon=1e-5, weight_decay=0.5))


def several_optimizers() -> Any:
    one, other = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)
    return dense(keras.optimizers.MultiOptimizer({".*kernel": one, ".*bias": other}))


OUTSIDE: list[Any] = []
"""An optimizer, as a module may have one."""


def made_outside() -> Any:
    OUTSIDE.extend(() if OUTSIDE else [keras.optimizers.SGD(0.1)])
    return dense(OUTSIDE[0])


def legacy_optimizer() -> Any:
    import tf_keras

    return dense(tf_keras.optimizers.legacy.SGD(0.1), tf_keras)


def keras_adadelta() -> Any:
    return dense(keras.optimizers.Adadelta(1.0))


def keras_adafactor() -> Any:
    return dense(keras.optimizers.Adafactor(0.05))


def keras_adagrad() -> Any:
    return dense(keras.optimizers.Adagrad(0.05))


def keras_adamax() -> Any:
    return dense(keras.optimizers.Adamax(0.01, epsilon=1e-5))


def keras_ftrl() -> Any:
    return dense(keras.optimizers.Ftrl(0.05, l1_regularization_strength=0.001))


def keras_lamb() -> Any:
    return dense(keras.optimizers.Lamb(0.01, epsilon=1e-5, weight_decay=0.1))


def keras_lion() -> Any:
    return dense(keras.optimizers.Lion(0.001, weight_decay=0.1))


def keras_muon() -> Any:
    return dense(keras.optimizers.Muon(0.01, epsilon=1e-5))


def keras_nadam() -> Any:
    return dense(keras.optimizers.Nadam(0.01, epsilon=1e-5))


def keras_rmsprop() -> Any:
    return dense(keras.optimizers.RMSprop(0.01, momentum=0.9, centered=True, epsilon=1e-5))


def keras_schedulefreeadamw() -> Any:
    """Built here: Keras 3.15 builds it in `fit` so that it begins at zero, and not at the weights."""
    model = dense(keras.optimizers.ScheduleFreeAdamW(0.01, epsilon=1e-5, weight_decay=0.1))
    model.optimizer.build(model.trainable_variables)
    return model


def accumulation() -> Any:
    return dense(keras.optimizers.Adam(0.01, epsilon=1e-5, gradient_accumulation_steps=4))


def accumulation_with_all() -> Any:
    inner = keras.optimizers.AdamW(
        0.05, epsilon=1e-5, gradient_accumulation_steps=3, use_ema=True, ema_momentum=0.5, global_clipnorm=0.05,
        weight_decay=0.1,
    )  # fmt: skip
    return dense(keras.optimizers.LossScaleOptimizer(inner))


def constraint() -> Any:
    constraints = keras.constraints
    return dense(
        keras.optimizers.SGD(0.5), kernel_constraint=constraints.MaxNorm(0.5), bias_constraint=constraints.NonNeg()
    )


def weight_decay() -> Any:
    optimizer = keras.optimizers.AdamW(0.05, epsilon=1e-5, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return dense(optimizer)


def tf_keras_adam() -> Any:
    import tf_keras

    return dense(tf_keras.optimizers.Adam(0.01, epsilon=1e-5), tf_keras)
