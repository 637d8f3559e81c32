"""A model without a `call`, with two networks and an optimizer for each, as in the Keras guide to custom train steps.

Without TF_CONFIG it is plain Keras on one device. Writes losses and weights to the file that its argument names.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy() if os.environ.get("TF_CONFIG") else None


class Adversaries(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator, self.generator = discriminator, generator
        self.tracker = keras.metrics.Mean(name="d_loss")

    @property
    def metrics(self):
        return [self.tracker]

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    def train_step(self, real):
        count = tf.shape(real)[0]
        labels = tf.concat([tf.ones((count, 1)), tf.zeros((count, 1))], 0)
        with tf.GradientTape() as tape:
            loss = self.loss_fn(labels, self.discriminator(tf.concat([self.generator(real), real], 0)))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(loss, weights), weights)
        with tf.GradientTape() as tape:
            other = self.loss_fn(tf.zeros((count, 1)), self.discriminator(self.generator(real)))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(other, weights), weights)
        self.tracker.update_state(loss)
        return {"d_loss": self.tracker.result()}


def network(outputs):
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(outputs)])


keras.utils.set_random_seed(1)
examples = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")
with strategy.scope() if strategy else contextlib.nullcontext():
    model = Adversaries(network(1), network(4))
    model.compile(
        keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01), keras.losses.BinaryCrossentropy(from_logits=True)
    )
history = model.fit(tf.data.Dataset.from_tensor_slices(examples).batch(12), epochs=3, verbose=0)
if strategy is None or strategy.extended.should_checkpoint:
    measured = {"losses": history.history["d_loss"], "weights": [one.tolist() for one in model.get_weights()]}
    Path(sys.argv[1]).write_text(json.dumps(measured))
