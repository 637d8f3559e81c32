"""A loop of one's own as in the guide of TensorFlow, whose step a session checks: right ones, and the usual faults."""

import sys

import keras
import numpy as np
import tensorflow as tf

import dtj_trainer
from dtj_trainer.errors import UsageError

GLOBAL_BATCH = 12
random = np.random.default_rng(0)
x = random.normal(size=(24, 4)).astype("float32")
y = (x[:, :1] > 0).astype("float32") + x[:, 1:2]

with dtj_trainer.session() as s:
    replicas = s.strategy.num_replicas_in_sync
    with s.strategy.scope():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((4,)), *layers])
        optimizer = keras.optimizers.Adam(0.1, **({"global_clipnorm": 0.1} if "clip" in sys.argv else {}))
        loss_of = keras.losses.MeanSquaredError(reduction="none")
        seen = keras.metrics.Mean()
        calls = tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    s.checkpoint(model=model, optimizer=optimizer)

    def by(reduce):
        def step(batch):
            inputs, labels = batch
            with tf.GradientTape() as tape:
                loss = reduce(loss_of(labels, model(inputs, training=True)))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            seen.update_state(loss)
            calls.assign_add(1)
            return loss

        return step

    def masked(losses):
        kept = tf.cast(losses > tf.reduce_min(losses), losses.dtype)
        if tf.reduce_sum(kept) > 0:  # AutoGraph makes a graph of it
            losses = losses * kept
        return tf.reduce_sum(losses) / tf.reduce_sum(kept)

    STEPS = {
        "sum": lambda losses: tf.reduce_sum(losses) / GLOBAL_BATCH,
        "average": lambda losses: tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH),
        "average_of_replica": tf.nn.compute_average_loss,
        "mean_kept": lambda losses: tf.reduce_mean(losses) / replicas,
        "mean": tf.reduce_mean,
        "twice": lambda losses: tf.reduce_sum(losses) / GLOBAL_BATCH / s.strategy.num_replicas_in_sync,
        "twice_kept": lambda losses: tf.reduce_sum(losses) / GLOBAL_BATCH / replicas,
        "masked": masked,
        "raises": lambda losses: losses.numpy(),
    }
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(GLOBAL_BATCH)
    distributed = s.strategy.experimental_distribute_dataset(data)
    here = GLOBAL_BATCH * len(s.strategy.extended.worker_devices) // replicas
    batches = {"distributed": next(iter(distributed)), "tensors": (x[:here], y[:here])}
    before = [np.array(one) for one in (*model.get_weights(), *(v.numpy() for v in optimizer.variables))]
    for name, reduce in STEPS.items():
        if sys.argv[1] not in ("all", name):
            continue
        for kind, batch in batches.items() if name in ("sum", "mean") else list(batches.items())[:1]:
            try:
                s.check(by(reduce), batch)
                print(f"{name} of {kind}: holds", flush=True)
            except UsageError as error:
                if sys.argv[1] != "all":
                    raise
                print(f"{name} of {kind}: {error}", flush=True)
    after = [*model.get_weights(), *(v.numpy() for v in optimizer.variables)]
    same = all(np.array_equal(one, two) for one, two in zip(before, after, strict=True))
    print("unchanged", same, float(seen.result()), int(calls.numpy()))

    @tf.function
    def train(batch):
        return s.strategy.reduce("SUM", s.strategy.run(by(STEPS["sum"]), args=(batch,)), axis=None)

    for _, batch in zip(s.steps(2), distributed, strict=True):
        train(batch)
    print("trained", int(calls.numpy()), int(optimizer.iterations.numpy()), flush=True)
