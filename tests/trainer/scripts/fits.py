"""Keras' `fit` in a session: TOTAL steps, wherever it begins; with `late`, of a model that only fit builds."""

import sys

import keras
import numpy as np
import tensorflow as tf

import dtj_trainer

TOTAL = int(sys.argv[1])

keras.utils.set_random_seed(7)
with dtj_trainer.session() as s:
    with s.strategy.scope():
        layers = keras.layers
        first = [] if "late" in sys.argv else [layers.Input((8,))]
        model = keras.Sequential([*first, layers.Dense(16, "relu"), layers.Dropout(0.5), layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    s.checkpoint(model=model, optimizer=model.optimizer)
    random = np.random.default_rng(7)
    inputs = random.normal(size=(512, 8)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1] ** 2))
    # Keras begins the data twice, to look at a first batch: an order that changes each time would not be the same.
    data = data.shuffle(512, seed=7, reshuffle_each_iteration=False).repeat().batch(16)
    if s.step < TOTAL:
        left = TOTAL - s.step
        model.fit(data.skip(s.step), steps_per_epoch=left, epochs=1, verbose=0, callbacks=[s.callback(batch_size=16)])
