"""`fit` with the callback of the package next to this file; then what its port says of it."""

import os
import sys
import urllib.request

import numpy as np

if sys.argv[1] == "keras":
    import keras
else:
    import tf_keras as keras

from dtj_launch.progress import DTJCallback

assert "dtj_trainer" not in sys.modules
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)])
model.compile(loss="mse", metrics=["mae", keras.metrics.F1Score()])
inputs = np.ones((96, 4), "float32")
data = {"validation_data": (inputs, inputs[:, :2]), "batch_size": 16, "verbose": 0}
for first_epoch, epochs in ((0, 3), (2, 3)):
    shows = DTJCallback(batch_size=16)
    model.fit(inputs, inputs[:, :2], initial_epoch=first_epoch, epochs=epochs, callbacks=[shows], **data)
    for path in sys.argv[2:]:
        with urllib.request.urlopen(f"http://127.0.0.1:{os.environ['DTJ_STATUS_PORT']}{path}", timeout=60) as answer:
            print(answer.read().decode())
    print("fitted", flush=True)
