"""A script as TensorFlow's own guide writes it: it reads TF_CONFIG, and shows its progress.

    python train.py        # here, alone
    dtj run job.yaml       # here, with as many processes as the job has workers

The trainer, which runs it in a job, adapts `fit` of Keras 3 to several workers: docs/scripts.md.
"""

import os

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.callbacks import DTJCallback  # what `dtj run` and the job's status show; all else is yours

EPOCHS = 10
BATCH_SIZE = 64  # of all workers together

strategy = tf.distribute.MultiWorkerMirroredStrategy() if "TF_CONFIG" in os.environ else tf.distribute.get_strategy()

labels = np.arange(2000) % 2
turn = np.linspace(0.25, 1.5, 2000) * 2 * np.pi
angle = turn + labels * np.pi
points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1).astype("float32") / 10
examples = tf.data.Dataset.from_tensor_slices((points, labels.astype("float32")))
batches = examples.shuffle(2000, seed=1).repeat().batch(BATCH_SIZE)

keras.utils.set_random_seed(1)  # all workers begin with the same weights
with strategy.scope():
    layers = [keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu"), keras.layers.Dense(1, "sigmoid")]
    model = keras.Sequential([keras.Input((2,)), *layers])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="binary_crossentropy")

callbacks = [DTJCallback(batch_size=BATCH_SIZE)]
directory = os.environ.get("DTJ_CHECKPOINT_DIR")
if directory:  # a restarted job resumes the epoch that was interrupted
    callbacks.append(keras.callbacks.BackupAndRestore(os.path.join(directory, "backup")))
history = model.fit(batches, steps_per_epoch=len(labels) // BATCH_SIZE, epochs=EPOCHS, verbose=0, callbacks=callbacks)
print(f"loss {history.history['loss'][-1]:.4f}")
