"""What the first batch has shown of a loss is looked at again, after another `compile` and at later steps."""

from pathlib import Path

from trainer.cluster import TWO_DEVICES, ran

LATER = (
    TWO_DEVICES
    + """

def of_the_large(y, p):
    large = tf.cast(y > 1000.0, p.dtype)
    some = tf.reduce_sum(large)
    squares = tf.square(y - p)
    return tf.where(some > 0, tf.reduce_sum(squares * large) / tf.maximum(some, 1.0), tf.reduce_mean(squares))

r = np.random.default_rng(1)
x = r.normal(size=(160, 4)).astype("float32")
y = x[:, :1].copy()
y[80::3] = 2000.0
with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", of_the_large)
model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(8), epochs=2, verbose=0)
"""
)


def test_a_loss_that_first_leaves_examples_out_at_a_later_step_ends_the_training(folder: Path) -> None:
    line = ran(folder, code=2, script=LATER, imported=True)["worker-0"].last_words.splitlines()[-1]
    assert line.startswith("fit with 2 replicas: the loss of_the_large compares the examples of a batch or leaves some")
    assert "as those of step 11 show and those of the first did not, so steps 1 to 10 were not those of one" in line


OWN_LOSS = (
    TWO_DEVICES
    + """

class Penalized(keras.Sequential):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + 0.1 * tf.reduce_mean(tf.square(y_pred))

r = np.random.default_rng(1)
x = r.normal(size=(96, 4)).astype("float32")
y = (x[:, :1] > 0.8).astype("float32")

def trained(scope):
    keras.utils.set_random_seed(1)
    with scope():
        model = Penalized([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
        model.compile(keras.optimizers.SGD(0.5), "mse")
    model.fit(x, y, batch_size=32, verbose=0, shuffle=False)
    with scope():
        model.compile(keras.optimizers.SGD(0.5), keras.losses.Dice())
    model.fit(x, y, batch_size=32, epochs=3, verbose=0, shuffle=False)
    return np.concatenate([one.ravel() for one in model.get_weights()])

one = trained(contextlib.nullcontext)
many = trained(tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope)
print("differs by", abs(one - many).max(), flush=True)
assert abs(one - many).max() < 1e-5
"""
)


def test_a_loss_of_the_models_own_is_looked_at_again_after_another_compile(folder: Path) -> None:
    ran(folder, code=0, script=OWN_LOSS, imported=True)


LATER_IN_MODEL = LATER.replace(
    "with tf.distribute",
    """
class Own(keras.Sequential):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return of_the_large(y, y_pred)

with tf.distribute""",
).replace(
    'keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])\n    model.compile("sgd", of_the_large)',
    'Own([keras.Input((4,)), keras.layers.Dense(1)])\n    model.compile("sgd")',
)


def test_a_loss_of_the_models_own_that_first_leaves_examples_out_at_a_later_step_ends_the_training(
    folder: Path,
) -> None:
    line = ran(folder, code=2, script=LATER_IN_MODEL, imported=True)["worker-0"].last_words.splitlines()[-1]
    assert line.startswith("fit with 2 replicas: Own.compute_loss compares the examples of a batch or leaves some")
    assert "so steps 1 to 10 were not those of one" in line
