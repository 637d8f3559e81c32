"""The most common script there is: `compile` in a strategy's scope, `fit` with callbacks; writes what it measured.

Without TF_CONFIG it is plain Keras on one device. Arguments: where to write, epochs, the folder of the callbacks.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

several = bool(os.environ.get("TF_CONFIG"))
strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else None
keras = tf.keras

written, epochs, folder = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
random = np.random.default_rng(7)
inputs = random.normal(size=(109, 8)).astype("float32")
labels = (inputs.sum(1) > 0).astype("int64")


def dataset(count, *, known=True):
    data = tf.data.Dataset.from_tensor_slices((inputs[:count], labels[:count])).batch(25)
    return data if known else data.filter(lambda *_: True)


keras.utils.set_random_seed(7)
with strategy.scope() if strategy else contextlib.nullcontext():
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8,)),
            layers.Dense(16, "relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dense(2),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=0.5),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=2,
    )


class EndsInAnEpoch(keras.callbacks.Callback):
    """Raises on request, as a lost process would."""

    def on_epoch_begin(self, epoch, logs=None):
        if str(epoch) == os.environ.get("TEST_ENDS_IN_EPOCH"):
            raise SystemExit(3)


history = model.fit(
    dataset(109),
    epochs=epochs,
    validation_data=dataset(31, known=False),
    class_weight={0: 1.0, 1: 3.0},
    verbose=0,
    callbacks=[
        keras.callbacks.BackupAndRestore(folder / "backup"),
        keras.callbacks.ModelCheckpoint(folder / "best.keras", monitor="val_loss", save_best_only=True),
        keras.callbacks.EarlyStopping(monitor="val_accuracy", patience=4),
        keras.callbacks.TensorBoard(folder / "curves"),
        keras.callbacks.CSVLogger(folder / "table.csv"),
        EndsInAnEpoch(),
    ],
)
result = {
    "history": history.history,
    "evaluated": model.evaluate(dataset(109), verbose=0, return_dict=True),
    "predicted": model.predict(dataset(109), verbose=0).tolist(),
    "weights": [weight.tolist() for weight in model.get_weights()],
}
written.write_text(json.dumps(result))
