"""Losses and metrics that need the examples of all replicas; writes what each has learned, by its name, to a file.

Plain Python trains on one device. Under TF_CONFIG two workers train, each with its part of batches of 9.
"""

import contextlib
import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

N, BATCH, CLASSES = 33, 9, 4
random = np.random.default_rng(5)
X = random.normal(size=(N, 6)).astype("float32")
CLASS = random.integers(0, CLASSES, N)
VALUES = (random.normal(size=(N, 3)) * (1 + np.arange(N)[:, None] % 3)).astype("float32")
WEIGHTS = random.uniform(0.2, 2.0, N).astype("float32")


def positive(y, p):
    return tf.cast(y > 0.3, p.dtype)


def masked_mean(y, p):
    return tf.reduce_sum(tf.square(y - p) * positive(y, p)) / (1.0 + tf.reduce_sum(positive(y, p)))


def chosen(y, p):
    return tf.boolean_mask(tf.square(y - p), y > 0.3)


def dice(y, p):
    y, p = tf.sigmoid(y), tf.sigmoid(p)
    return 1 - 2 * tf.reduce_sum(y * p) / tf.reduce_sum(y * y + p * p)


def pairs(y, p):
    return tf.reduce_mean(tf.square((p[:, None] - p[None]) - (y[:, None] - y[None])))


def apart(p):
    return tf.reduce_sum(tf.square(p[:, None] - p[None]), -1)


def triplets(y, p):
    same = tf.cast(tf.equal(tf.reshape(y, [-1, 1]), tf.reshape(y, [1, -1])), p.dtype)
    far, near = tf.reduce_max(apart(p) * same, 1), tf.reduce_min(apart(p) + 100.0 * same, 1)
    return tf.reduce_mean(tf.nn.softplus(far - near))


def nt_xent(y, p):
    p = tf.math.l2_normalize(p, -1)
    alike = tf.cast(tf.equal(tf.reshape(y, [-1, 1]), tf.reshape(y, [1, -1])), p.dtype)
    logits = p @ tf.transpose(p) / 0.5 - 100.0 * tf.eye(tf.shape(p)[0])
    alike -= tf.eye(tf.shape(p)[0])
    return -tf.reduce_sum(alike * tf.nn.log_softmax(logits)) / (1.0 + tf.reduce_sum(alike))


def ranking(y, p):
    y, p = y[:, 0], p[:, 0]
    better = tf.cast(y[:, None] > y[None], p.dtype)
    return tf.reduce_sum(better * tf.nn.softplus(p[None] - p[:, None])) / tf.reduce_sum(better)


def f1(y, p):
    y, p = positive(y, p), positive(p, p)
    return 2 * tf.reduce_sum(y * p) / (tf.reduce_sum(y) + tf.reduce_sum(p) + 1e-7)


class ByItself(keras.losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        return masked_mean(y_true, y_pred)


class OfPairs(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return pairs(y, y_pred) + tf.add_n(self.losses)


CASES = {
    "masked mean": {"loss": masked_mean},
    "masked mean, weights": {"loss": masked_mean, "weighted": True},
    "chosen": {"loss": chosen},
    "dice": {"loss": dice},
    "pairs": {"loss": pairs},
    "triplets": {"loss": triplets, "labels": CLASS},
    "nt_xent": {"loss": nt_xent, "labels": CLASS},
    "ranking": {"loss": ranking},
    "circle": {"loss": keras.losses.Circle(gamma=1.0), "labels": CLASS},
    "reduces by itself": {"loss": ByItself()},
    "compute_loss": {"loss": None, "kind": OfPairs},
    "metrics": {"loss": "mse", "metrics": [f1, "mae"], "weighted_metrics": ["mae"], "weighted": True},
    "two outputs": {"loss": ["mse", dice], "two": True},
}


def learned(loss, labels=VALUES, kind=keras.Model, weighted=False, two=False, **compiled):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((6,))
    hidden = keras.layers.Dense(8, "tanh", kernel_regularizer="l2", activity_regularizer="l2")(inputs)
    outputs = keras.layers.Dense(3)(hidden)
    model = kind(inputs, [outputs, keras.layers.Dense(3)(hidden)] if two else outputs)
    model.compile(keras.optimizers.SGD(0.05), loss=loss, **compiled)
    labels = (labels, labels[::-1].copy()) if two else labels
    parts = (X, labels, WEIGHTS) if weighted else (X, labels)
    data = tf.data.Dataset.from_tensor_slices(parts).batch(BATCH)
    history = model.fit(data, epochs=3, verbose=0).history
    evaluated = model.evaluate(data, return_dict=True, verbose=0)
    return [*model.get_weights(), *history.values(), *evaluated.values()]


if __name__ == "__main__":
    together = "TF_CONFIG" in os.environ
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if together else None
    found = {}
    for name, case in CASES.items():
        with strategy.scope() if strategy else contextlib.nullcontext():
            for place, value in enumerate(learned(**case)):
                found[f"{name}/{place}"] = np.asarray(value)
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"] if together else ""
    np.savez(f"{sys.argv[1]}{task}", **found)
