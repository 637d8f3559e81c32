"""A training loop of one's own, with the lines marked `# job` around it that make it one that a job can resume.

    python train.py                                   # here
    python -m dtj_trainer --script train.py           # as a replica of a job does

It learns to tell two spirals apart, on any strategy; killed at any time, it ends with the same bits as if it were not.
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

import dtj_trainer  # job


def spirals(examples: int = 2000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Points of two arms, [examples, 2], and which arm each is of, [examples, 1]."""
    random = np.random.default_rng(seed)
    arm = random.integers(0, 2, examples)
    angle = random.uniform(0.5, np.pi, examples)
    points = np.stack([np.cos(angle + np.pi * arm), np.sin(angle + np.pi * arm)], axis=1) * angle[:, None] / 10
    return points.astype("float32"), arm[:, None].astype("float32")


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--batch-size", type=int, default=64, help="of all replicas together")
options = parser.parse_args()

keras.utils.set_random_seed(1)
with dtj_trainer.session() as s:  # job
    with s.strategy.scope():
        layers = [keras.layers.Dense(48, "tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(48, "tanh")]
        model = keras.Sequential([keras.Input((2,)), *layers, keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.01)
    s.checkpoint(model=model, optimizer=optimizer)  # job

    data = tf.data.Dataset.from_tensor_slices(spirals()).shuffle(2000, seed=1).repeat().batch(options.batch_size)
    batches = iter(s.strategy.experimental_distribute_dataset(data.skip(s.step)))  # job: .skip(s.step)

    def learn(points, arms):
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(arms, model(points, training=True))
            loss = tf.reduce_sum(losses) / options.batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train_step(batch):
        return s.strategy.reduce("SUM", s.strategy.run(learn, args=batch), axis=None)

    for _ in s.steps(options.steps):  # job
        loss = train_step(next(batches))
        s.report(loss=loss, batch_size=options.batch_size)  # job

    if s.is_leader:
        points, arms = spirals(seed=2)
        right = (model(points).numpy() > 0) == arms
        print(f"right on points that it has not seen: {right.mean():.3f}")
        if s.export_dir:
            model.export(str(s.export_dir / "1"))
