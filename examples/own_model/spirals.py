"""A model and data of one's own, which the trainer drives:

python -m dtj_trainer --model own_model.spirals:model --data own_model.spirals:points
"""

import keras
import numpy as np
import tensorflow as tf


def model() -> keras.Model:
    """Tells which of two spirals a point lies on."""
    layers = [keras.Input((2,)), *(keras.layers.Dense(64, "relu") for _ in range(2)), keras.layers.Dense(1, "sigmoid")]
    spirals = keras.Sequential(layers)
    spirals.compile(optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy")
    return spirals


def points() -> dict[str, tf.data.Dataset]:
    """A thousand points on two spirals that turn around each other, of which one fifth is held out."""
    labels = np.arange(1000) % 2
    turn = np.linspace(0.25, 1.5, 1000) * 2 * np.pi
    angle = turn + labels * np.pi
    places = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1).astype("float32")
    held_out = np.arange(1000) // 2 % 5 == 4
    parts = {"training": ~held_out, "held_out": held_out}
    return {name: tf.data.Dataset.from_tensor_slices((places[part], labels[part])) for name, part in parts.items()}
