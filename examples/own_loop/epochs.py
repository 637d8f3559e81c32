"""A loop with epochs, which follow from s.step: it resumes in the middle of one with the same bits."""

import keras
import numpy as np
import tensorflow as tf

import dtj_trainer

EPOCHS, BATCH_SIZE = 4, 64

random = np.random.default_rng(1)
points = random.normal(size=(2000, 2)).astype("float32")
inside = (np.linalg.norm(points, axis=1, keepdims=True) < 1).astype("float32")
examples = tf.data.Dataset.from_tensor_slices((points, inside))
STEPS_PER_EPOCH = len(points) // BATCH_SIZE

keras.utils.set_random_seed(1)
with dtj_trainer.session() as s:
    with s.strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.01)
    s.checkpoint(model=model, optimizer=optimizer)

    def batches(step):
        """All batches from this step on. The order of an epoch depends only on its number."""
        for epoch in range(step // STEPS_PER_EPOCH, EPOCHS):
            order = examples.shuffle(len(points), seed=epoch).batch(BATCH_SIZE, drop_remainder=True)
            seen = max(0, step - epoch * STEPS_PER_EPOCH)
            yield from s.strategy.experimental_distribute_dataset(order.skip(seen))

    def learn(inputs, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, model(inputs, training=True))
            loss = tf.reduce_sum(losses) / BATCH_SIZE
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def train_step(batch):
        return s.strategy.reduce("SUM", s.strategy.run(learn, args=batch), axis=None)

    for step, batch in zip(s.steps(EPOCHS * STEPS_PER_EPOCH), batches(s.step), strict=False):
        epoch, place = divmod(step, STEPS_PER_EPOCH)
        loss = train_step(batch)
        s.report(loss=loss, epoch=epoch + 1, batch_size=BATCH_SIZE)
        if place == STEPS_PER_EPOCH - 1:
            right = np.mean((model(points).numpy() > 0) == inside)
            if s.is_leader:
                print(f"epoch {epoch + 1}: accuracy {right:.4f}")

    if s.is_leader:
        print(f"weights {float(sum(tf.reduce_sum(tf.abs(each)) for each in model.trainable_variables)):.6f}")
