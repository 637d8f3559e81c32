"""A script as it was before there was a job: Keras' `fit`, and one callback that shows how far it is.

python train.py                                            # here
python -m dtj_trainer --script train.py -- --epochs 5      # as a replica of a job does
"""

import argparse
import os

import keras
import numpy as np

from dtj_trainer.callbacks import DTJCallback  # the only line of ours

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()

keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
inputs = random.normal(size=(2048, 16)).astype("float32")
targets = inputs @ random.normal(size=(16, 1)).astype("float32")

model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
directory = os.environ.get("DTJ_CHECKPOINT_DIR")
backup = [keras.callbacks.BackupAndRestore(os.path.join(directory, "backup"))] if directory else []
model.fit(
    inputs, targets, batch_size=64, epochs=options.epochs, verbose=0, callbacks=[DTJCallback(batch_size=64), *backup]
)
print(f"loss {model.evaluate(inputs, targets, verbose=0):.6f}")
