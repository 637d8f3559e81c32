"""Rows of a weight that all replicas have, such as embeddings of positions, in a loop of a script's own.

What `fit` and `--model` do with them is in `adversaries/found.py`.
"""

import re
from pathlib import Path

from trainer.cluster import TWO_DEVICES, ran

POSITIONS = (
    TWO_DEVICES
    + """

class Positions(keras.layers.Layer):
    def build(self, shape):
        self.places = keras.layers.Embedding(8, shape[-1])

    def call(self, h):
        return h + self.places(tf.range(tf.shape(h)[1]))

random = np.random.default_rng(0)
rows = random.integers(0, 20, (32, 6)), random.integers(0, 4, (32, 6))
data = tf.data.Dataset.from_tensor_slices(rows).batch(8)

def trained(strategy):
    keras.utils.set_random_seed(0)
    with strategy.scope():
        given = keras.Input((6,), dtype="int32")
        model = keras.Model(given, keras.layers.Dense(4)(Positions()(keras.layers.Embedding(20, 6)(given))))
        optimizer = keras.optimizers.Adam(0.01, epsilon=1e-3)

    def learn(x, y):
        with tf.GradientTape() as tape:
            each = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
            loss = tf.reduce_sum(each) / 48
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    step = tf.function(lambda batch: strategy.run(learn, args=batch))
    for batch in strategy.experimental_distribute_dataset(data):
        step(batch)
    return model.get_weights()

one = trained(tf.distribute.OneDeviceStrategy("CPU:0"))
two = trained(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
print("largest difference", max(float(abs(a - b).max()) for a, b in zip(one, two)))
"""
)


def test_rows_that_all_replicas_have_are_summed_before_an_optimizer_of_a_loop_squares_them(folder: Path) -> None:
    log = ran(folder, script=POSITIONS, imported=True)["worker-0"].log
    found = re.search("^largest difference (.*)$", log, re.MULTILINE)
    assert found is not None
    assert float(found[1]) < 1e-6, log
