"""Models that change their gradients between `tape.gradient` and the optimizer, in each way of the table of scripts."""

import keras
import tensorflow as tf

NORM = 0.02


def clipped_by_norm(model, gradients, values):
    return tf.clip_by_global_norm(gradients, NORM)[0]


def normalized(model, gradients, values):
    return [gradient / (tf.norm(gradient) + 1e-6) for gradient in gradients]


def decayed(model, gradients, values):
    return [one + 0.1 * weight for one, weight in zip(gradients, model.trainable_variables, strict=True)]


@tf.function
def branched(model, gradients, values):
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(one)) for one in gradients])
    return tf.cond(finite, lambda: [tf.sign(one) for one in gradients], lambda: [0 * one for one in gradients])


def accumulated(model, gradients, values):
    for total, gradient in zip(model.totals, gradients, strict=True):
        total.assign_add(gradient)
    return [total / 4.0 for total in model.totals]


def noisy(model, gradients, values):
    return [gradient + tf.random.normal(gradient.shape) for gradient in gradients]


def by_examples(model, gradients, values):
    return [gradient * tf.reduce_max(values) for gradient in gradients]


CHANGES = {
    "clip_by_global_norm": clipped_by_norm,
    "gradients normalized": normalized,
    "weights added to gradients": decayed,
    "gradients in tf.cond and a tf.function": branched,
    "gradients accumulated by hand": accumulated,
    "noise in the gradients": noisy,
    "gradients times what the examples give": by_examples,
}


class Changing(keras.Model):
    """A train step as in the guide of Keras, with a change of the gradients."""

    change = None

    def train_step(self, batch):
        values, wanted = batch
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=wanted, y_pred=self(values, training=True))
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        if self.change:
            gradients = self.change(gradients, values)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


class Penalized(Changing):
    """Several losses at once, and one more that is made of the gradients of them."""

    def train_step(self, batch):
        values, wanted = batch
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                outputs = self(values, training=True)
                losses = [tf.reduce_mean(tf.square(wanted - outputs)), self.compute_loss(y=wanted, y_pred=outputs)]
            gradients = tape.gradient(losses, self.trainable_variables)
            penalty = tf.add_n([tf.reduce_sum(tf.square(one)) for one in gradients])
        more = outer.gradient(penalty, self.trainable_variables)
        both = [tf.add_n([one, 0.1 * other]) for one, other in zip(gradients, more, strict=True)]
        self.optimizer.apply_gradients(zip(both, self.trainable_variables, strict=True))
        return {"loss": losses[0] + losses[1]}


class OwnGradients(Changing):
    """Gradients of a linear model, written down."""

    def train_step(self, batch):
        values, wanted = batch
        error = self(values, training=True) - wanted
        count = tf.cast(tf.shape(values)[0], "float32")
        kernel, bias = self.trainable_variables
        gradients = tf.matmul(values, error, transpose_a=True) / count, tf.reduce_mean(error, 0)
        self.optimizer.apply_gradients(zip(gradients, (kernel, bias), strict=True))
        return {"loss": tf.reduce_mean(tf.square(error))}


class Adversarial(keras.Model):
    """Two networks, each with its optimizer, of which one clips its gradients."""

    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = one, other

    def compile(self, make, **options):
        super().compile(**options)
        self.of_one, self.of_other = make(), make()

    def train_step(self, batch):
        values, wanted = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.other(self.one(values)) - wanted))
        gradients = tape.gradient(loss, self.other.trainable_weights)
        self.of_other.apply_gradients(
            zip(tf.clip_by_global_norm(gradients, NORM)[0], self.other.trainable_weights, strict=True)
        )
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.other(self.one(values)) + wanted))
        gradients = tape.gradient(loss, self.one.trainable_weights)
        self.of_one.apply_gradients(zip(gradients, self.one.trainable_weights, strict=True))
        return {"loss": loss}


@keras.saving.register_keras_serializable()
class Clipper(keras.optimizers.SGD):
    """An optimizer that clips in its own way."""

    def apply(self, grads, trainable_variables=None):
        return super().apply(tf.clip_by_global_norm(grads, NORM)[0], trainable_variables)


def compiled(how, dense):
    """A model for 4 numbers, compiled.

    Args:
        dense: makes a layer: (units, seed, activation).
    """

    def sgd():
        return keras.optimizers.SGD(0.5)

    inputs = keras.layers.Input((4,))
    linear, hidden = how == "gradients without a tape", dense(8, 1, "relu")
    outputs = dense(1, 2)(inputs) if linear else dense(1, 2, "sigmoid")(hidden(inputs))
    if how.endswith("of an Embedding"):
        embedding = keras.layers.Embedding(8, 2, keras.initializers.GlorotUniform(3))
        words = embedding(keras.ops.cast(keras.ops.abs(inputs), "int32"))
        outputs = dense(1, 2, "sigmoid")(keras.layers.Flatten()(words))
    if how == "two optimizers":
        other = keras.layers.Input((8,))
        model = Adversarial(keras.Model(inputs, hidden.output), keras.Model(other, dense(1, 2)(other)))
        model.compile(sgd)
        return model
    kinds = {"gradients of several losses and of gradients": Penalized, "gradients without a tape": OwnGradients}
    model = kinds.get(how, keras.Model if how == "an optimizer that clips" else Changing)(inputs, outputs)
    if change := CHANGES.get(how.removesuffix(", eagerly").removesuffix(" of an Embedding")):
        model.change = lambda *given: change(model, *given)
    if how == "gradients accumulated by hand":
        modes = {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.SUM}
        model.totals = [tf.Variable(tf.zeros(one.shape), trainable=False, **modes) for one in model.trainable_variables]
    optimizer = Clipper(0.5) if how == "an optimizer that clips" else sgd()
    if how == "scale_loss, clip_by_global_norm":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=4.0)
        model.change = lambda gradients, values: tf.clip_by_global_norm(gradients, 4 * NORM)[0]
    model.compile(optimizer, "binary_crossentropy", run_eagerly=how.endswith("eagerly"))
    return model
