"""Keras' own TensorBoard callback, with most of what it can write."""

import sys

import keras
import numpy as np

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(loss="mse")
board = keras.callbacks.TensorBoard(sys.argv[1], histogram_freq=1, write_images=True)
examples = np.ones((8, 4)), np.ones((8, 1))
model.fit(*examples, epochs=2, verbose=0, validation_data=examples, callbacks=[board])
