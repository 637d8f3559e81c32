"""Models of a scope, of which parts are made outside of it; writes what each has learned.

Without TF_CONFIG it is plain Keras on one device. Arguments: where to write.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy() if os.environ.get("TF_CONFIG") else None
keras = tf.keras
random = np.random.default_rng(7)
inputs = random.normal(size=(96, 4)).astype("float32")
labels = (inputs.sum(1, keepdims=True) + random.normal(size=(96, 1)) > 0).astype("float32")
data = tf.data.Dataset.from_tensor_slices((inputs, labels))


def scope():
    return strategy.scope() if strategy else contextlib.nullcontext()


class Share(keras.metrics.Metric):
    """Of the labels that are 1, times a factor that no config tells."""

    def __init__(self, factor=1.0):
        super().__init__(name="share")
        self.factor = factor
        self.total = self.add_variable((), "zeros", name="total")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(self.factor * tf.reduce_sum(y_true))
        self.count.assign_add(tf.cast(tf.size(y_true), "float32"))

    def result(self):
        return self.total / self.count


def layers_of(seed):
    keras.utils.set_random_seed(seed)
    return [keras.layers.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1, "sigmoid")]


def model_of(seed):
    with scope():
        return keras.Sequential(layers_of(seed))


def by_name():
    model = model_of(1)
    model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
    return model


def by_object():
    model = model_of(2)
    model.compile(keras.optimizers.Adam(0.02), keras.losses.BinaryCrossentropy(), metrics=[Share(3.0)])
    return model


def used_before():
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model = model_of(3)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "binary_crossentropy", weighted_metrics=[keras.metrics.AUC(num_thresholds=20)])
    return model


def of_older_layers():
    layers = keras.Sequential(layers_of(4)[:2])
    with scope():
        model = keras.Sequential([layers, keras.layers.Dense(1, "sigmoid")])
    model.compile(keras.optimizers.RMSprop(0.02), "binary_crossentropy")
    return model


results = {}
for case in (by_name, by_object, used_before, of_older_layers):
    model = case()
    plateau = keras.callbacks.ReduceLROnPlateau(patience=1, min_delta=0.01)
    stopping = keras.callbacks.EarlyStopping(patience=3, min_delta=0.005, restore_best_weights=True)
    history = model.fit(
        data.batch(32), epochs=5, validation_data=data.take(30).batch(10), callbacks=[plateau, stopping], verbose=0
    ).history
    results[case.__name__] = {
        "history": history,
        "evaluated": model.evaluate(data.batch(32), verbose=0, return_dict=True),
        "weights": [weight.tolist() for weight in model.get_weights()],
    }
index = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
Path(f"{sys.argv[1]}-{index}.json").write_text(json.dumps(results))
