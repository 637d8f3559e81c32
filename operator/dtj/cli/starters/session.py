"""A training loop of your own. The lines marked `# job` make it one that a job stops, resumes and shows.

    python train.py        # here, alone
    dtj run job.yaml       # here, with as many processes as the job has workers

If it is killed, it resumes from its last checkpoint and ends with the same numbers.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import dtj_trainer  # job

STEPS = 500
BATCH_SIZE = 64  # of all workers together


def data() -> tf.data.Dataset:
    """Your batches, always in the same order. These are points on two spirals, and which of them each is on."""
    labels = np.arange(2000) % 2
    turn = np.linspace(0.25, 1.5, 2000) * 2 * np.pi
    angle = turn + labels * np.pi
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1).astype("float32") / 10
    examples = tf.data.Dataset.from_tensor_slices((points, labels[:, None].astype("float32")))
    return examples.shuffle(2000, seed=1).repeat().batch(BATCH_SIZE)


keras.utils.set_random_seed(1)  # all workers begin with the same weights
with dtj_trainer.session() as s:  # job: waits for the other workers, and makes the strategy
    with s.strategy.scope():
        layers = [keras.layers.Dense(64, "relu"), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((2,)), *layers])
        optimizer = keras.optimizers.Adam(0.01)
    s.checkpoint(model=model, optimizer=optimizer)  # job: restores the newest, saves when it is due

    batches = iter(s.strategy.experimental_distribute_dataset(data().skip(s.step)))  # job: .skip(s.step)

    def learn(points: Any, labels: Any) -> Any:
        """One step of one replica; its part of the loss of the whole batch."""
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, model(points, training=True))
            loss = tf.reduce_sum(losses) / BATCH_SIZE
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train_step(batch: Any) -> Any:
        return s.strategy.reduce("SUM", s.strategy.run(learn, args=batch), axis=None)

    for _ in s.steps(STEPS):  # job: stops all workers at the same step when one of them must stop
        loss = train_step(next(batches))
        s.report(loss=loss, batch_size=BATCH_SIZE)  # job: what `dtj run` and the job's status show

    if s.is_leader:
        print(f"loss {float(loss):.4f}")
        if s.export_dir:
            model.export(str(s.export_dir / "1"))
