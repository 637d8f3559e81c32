"""Keras' `predict` and `predict_on_batch` over several replicas. Imports TensorFlow and Keras."""

from typing import Any

import tensorflow as tf

from dtj_trainer.compat import incompatible, private
from dtj_trainer.keras_fit import batches, first_batch, random_draws, replicas_without_examples
from dtj_trainer.keras_fit.adoption import check_keeps_nothing_of_batches
from dtj_trainer.keras_fit.replica_losses import several
from dtj_trainer.training.layers import counting

try:
    from keras.src import tree
    from keras.src.backend.tensorflow import trainer as keras_trainer
except ImportError as error:
    raise incompatible(str(error), library="keras") from None


def predict_on_batch(original: Any, model: Any, x: Any) -> Any:
    """Each replica predicts its part of the rows."""
    strategy = model.distribute_strategy
    if several(strategy):
        x = batches.divide(strategy, x, asked=model, compared=model.predict_function is None)
    return original(model, x)


def make_predict_function(original: Any, model: Any, force: bool = False) -> None:
    """No replica predicts without an example."""
    strategy = model.distribute_strategy
    if not several(strategy) or (model.predict_function is not None and not force):
        original(model, force)
        return
    check_keeps_nothing_of_batches(model)
    reduced = private(keras_trainer, "reduce_per_replica", library="keras")
    concat = private(keras_trainer, "concat", library="keras")
    draws = random_draws.draws(strategy)

    @tf.autograph.experimental.do_not_convert
    def of_replica(data: Any, count: Any) -> Any:
        present = None if count is None else tf.cast(count > 0, tf.float32)
        with counting(present), draws():
            outputs = model._autoconvert_optionals(model.predict_step)(data)
        return tree.map_structure(lambda one: replicas_without_examples.without(one, count), outputs)

    def steps(data: Any) -> Any:
        given = [replicas_without_examples.put(strategy, one, equal=False) for one in data]
        each = [strategy.run(of_replica, args=one) for one in given]
        outputs = [reduced(one, strategy, reduction="concat") for one in each]
        return tree.map_structure(lambda *parts: concat(parts), *outputs) if outputs[1:] else outputs[0]

    call = steps if model.run_eagerly else tf.function(steps, reduce_retracing=True, autograph=False)

    def function(data: Any) -> Any:
        first_batch.look_to_predict(strategy, model, data[0])
        return call(data)

    model.predict_function = function
