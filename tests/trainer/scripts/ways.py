"""Models whose parts are made in each way that Keras documents, and trained in each; writes what came of every cell.

Arguments: the folder to write to, replicas (`one device` is plain Keras), and cells. ../parity_scripts.py has them all.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

folder, replicas, *cells = sys.argv[1:]
folder = Path(folder)
if replicas == "Mirrored":
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)

import keras  # noqa: E402 - after the devices are set
import own_steps  # noqa: E402

layers, losses, metrics, optimizers = keras.layers, keras.losses, keras.metrics, keras.optimizers
EPOCHS = 3
random = np.random.default_rng(7)
inputs = random.normal(size=(49, 4)).astype("float32")  # one replica has no example of the last batch
labels = (inputs.sum(1, keepdims=True) + random.normal(size=(49, 1)) > 0).astype("float32")
weights = random.uniform(0.5, 2.0, size=(49,)).astype("float32")
strategy = None
early = {}
"""What is made before the strategy."""


def batched(*tensors, **options):
    return tf.data.Dataset.from_tensor_slices(tensors).batch(16, **options)


def scope():
    return strategy.scope() if strategy else contextlib.nullcontext()


@keras.saving.register_keras_serializable()
class Seen(layers.Layer):
    """A layer with a metric of its own."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seen = metrics.Mean(name="seen")

    def call(self, values):
        self.seen.update_state(values)
        return values


@keras.saving.register_keras_serializable()
class OwnStep(keras.Model):
    """A model with a train step as in the guide of Keras, and with a metric of its own."""

    def __init__(self, inputs, outputs, name=None, **options):
        super().__init__(inputs, outputs, name=name, **options)
        self.size = metrics.Mean(name="size")

    def train_step(self, batch):
        values, wanted = batch
        with tf.GradientTape() as tape:
            outputs = self(values, training=True)
            loss = self.compute_loss(y=wanted, y_pred=outputs)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            elif metric.name == "size":
                metric.update_state(0.5 * tf.reduce_mean(outputs) + loss)
            else:
                metric.update_state(wanted, outputs)
        return {metric.name: metric.result() for metric in self.metrics}


def distance(wanted, outputs):
    return tf.reduce_mean(tf.abs(wanted - outputs))


def dense(units, seed, activation=None):
    return layers.Dense(units, activation, kernel_initializer=keras.initializers.GlorotUniform(seed))


def sequential(*between):
    return keras.Sequential([layers.Input((4,)), dense(8, 1, "relu"), *between, dense(1, 2, "sigmoid")])


def own_step():
    values = layers.Input((4,))
    return OwnStep(values, dense(1, 2, "sigmoid")(dense(8, 1, "relu")(values)))


def callbacks():
    return [
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, min_delta=0.01),
        keras.callbacks.EarlyStopping(monitor="val_auc", mode="max", patience=0, restore_best_weights=True),
    ]


MADE = {
    "model": sequential,
    "step": own_step,
    "normalization": lambda: layers.BatchNormalization(momentum=0.5),
    "layer": Seen,
    "optimizer": optimizers.Adam,
    "schedule": lambda: optimizers.schedules.ExponentialDecay(0.05, 4, 0.5),
    "loss": losses.BinaryCrossentropy,
    "metrics": lambda: [metrics.AUC(name="auc"), metrics.MeanAbsoluteError(name="mae")],
    "number": lambda: [metrics.MeanMetricWrapper(distance, name="auc")],
    "callbacks": callbacks,
    "loop model": sequential,
    "loop optimizer": lambda: optimizers.Adam(0.01),
    "loop accumulation": lambda: optimizers.Adam(0.01, clipnorm=0.1, gradient_accumulation_steps=3),
    "loop loss": lambda: losses.BinaryCrossentropy(reduction=None),
    "loop metric": lambda: metrics.Mean(name="mean"),
}
NAMES = {"optimizer": "adam", "loss": "binary_crossentropy", "metrics": ["auc", "mae"]}
MODELS = ("model", "step", "loop model")


def from_config(part):
    """A part of what the config of another tells."""
    one = MADE[part]()
    made = [type(each).from_config(each.get_config()) for each in (one if isinstance(one, list) else [one])]
    return made if isinstance(one, list) else made[0]


def clone_model(part):
    base = MADE[part]()
    base.set_weights([weight + 0.01 for weight in base.get_weights()])
    made = keras.models.clone_model(base)
    made.set_weights([weight - 0.01 for weight in base.get_weights()])
    return made


def made(part, cell):
    """A part, in the way of the cell if it is the part of the cell, else in the scope."""
    tried, _, way = cell.partition(":")
    if part != tried:
        way = "in the scope"
    if way == "before the strategy":
        return early[part]
    if way == "by name":
        return NAMES[part]
    in_scope = way == "in the scope" or (part in MODELS and way in ("from_config", "clone_model", "load_model"))
    with scope() if in_scope else contextlib.nullcontext():
        if way.startswith("load_model"):
            return keras.models.load_model(folder / f"{part}.keras")
        return {"from_config": from_config, "clone_model": clone_model}.get(way, lambda part: MADE[part]())(part)


def compiled(cell):
    part, _, way = cell.partition(":")
    if way.startswith("load_model"):
        with scope() if way == "load_model" else contextlib.nullcontext():
            return keras.models.load_model(folder / f"{part}.keras")
    if part in MODELS:
        model = made(part, cell)
    else:
        between = [made(part, cell)] if part in ("normalization", "layer") else []
        with scope():
            model = sequential(*between)
    optimizer = optimizers.Adam(made("schedule", cell)) if part == "schedule" else made("optimizer", cell)
    shown = made("number" if part == "number" else "metrics", cell)
    with scope() if way == "in the scope" else contextlib.nullcontext():
        model.compile(optimizer, made("loss", cell), metrics=shown)
    return model


def measured(model, history):
    return {"history": history, "weights": [weight.tolist() for weight in model.get_weights()]}


def fitted(cell):
    model = compiled(cell)
    held_out = batched(inputs[:21], labels[:21])
    options = {"validation_data": held_out, "callbacks": made("callbacks", cell), "verbose": 0}
    return measured(model, model.fit(batched(inputs, labels), epochs=EPOCHS, **options).history)


def looped(cell):
    """A loop of the script's own."""
    kind = "accumulation" if cell.startswith("loop accumulation") else "optimizer"
    model, optimizer, loss_of, metric = (made(f"loop {part}", cell) for part in ("model", kind, "loss", "metric"))
    data = batched(inputs, labels)
    data = strategy.experimental_distribute_dataset(data) if strategy else data

    def learn(values, wanted):
        with tf.GradientTape() as tape:
            each = loss_of(wanted, model(values, training=True))
            count = tf.cast(tf.size(each), "float32")
            loss = tf.reduce_sum(each) / (tf.distribute.get_replica_context().all_reduce("sum", count))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        metric.update_state(each)
        return loss

    @tf.function
    def step(batch):
        if strategy is None:
            return learn(*batch)
        return strategy.reduce("SUM", strategy.run(learn, args=batch), axis=None)

    history = []
    for _ in range(EPOCHS):
        metric.reset_state()
        history += [*(float(step(batch)) for batch in data), float(metric.result())]
    return measured(model, history)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, place):
        return inputs[10 * place :][:10], labels[10 * place :][:10]


def by_data(data):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


def of_function():
    def shard(context):
        whole = tf.data.Dataset.from_tensor_slices((inputs[:48], labels[:48]))
        # Each worker has its part of each batch.
        parts = whole.batch(context.get_per_replica_batch_size(16))
        return parts.shard(context.num_input_pipelines, context.input_pipeline_id)

    return strategy.distribute_datasets_from_function(shard) if strategy else batched(inputs[:48], labels[:48])


def called(how):
    """What is asked of a compiled model."""
    compiling = ("steps_per_execution=3", "run_eagerly=True", "jit_compile=True", "auto_scale_loss=False")
    options = {name: json.loads(value.lower()) for name, value in (how.split("="),)} if how in compiling else {}
    with scope():
        model = sequential()
        adam = optimizers.Adam(**{how: 3}) if how == "gradient_accumulation_steps" else "adam"
        model.compile(adam, "binary_crossentropy", metrics=["mae", "AUC"], weighted_metrics=["accuracy"], **options)
    data, history = batched(inputs, labels), []
    plain = {"shuffle": False, "batch_size": 16}
    classes = {"class_weight": {0: 1.0, 1: 2.5}}

    def fit(*given, **options):
        history.append(model.fit(*given, verbose=0, **options).history)

    def on_batches():
        for part in (slice(0, 17), slice(17, 34), slice(34, 35)):
            for more in ({}, {"sample_weight": weights[part]}):
                history.append(model.train_on_batch(inputs[part], labels[part], **more))
                history.append(model.test_on_batch(inputs[part], labels[part], **more))
            history.append(model.train_on_batch(inputs[part], labels[part], **classes))
            history.append(model.predict_on_batch(inputs[part]).tolist())
            model.reset_metrics()

    def evaluate():
        history.append(model.evaluate(data, verbose=0))
        history.append(model.evaluate(inputs, labels, batch_size=7, sample_weight=weights, verbose=0))
        history.append(model.evaluate(data, steps=2, verbose=0))

    def predict():
        for given, more in ((data, {}), (inputs, {"batch_size": 7}), (inputs[:1], {}), (batched(inputs), {"steps": 2})):
            history.append(model.predict(given, verbose=0, **more).tolist())

    {
        "class_weight": lambda: (fit(inputs, labels, **plain, **classes), fit(data, **classes)),
        "sample_weight": lambda: (
            fit(inputs, labels, **plain, sample_weight=weights), fit(batched(inputs, labels, weights))
        ),
        "validation_split": lambda: fit(inputs, labels, **plain, validation_split=0.3, epochs=2),
        "validation_data with weights, validation_steps": lambda: (
            fit(data, validation_data=(inputs[:21], labels[:21], weights[:21]), validation_batch_size=8),
            fit(data, validation_data=data.repeat(), validation_steps=2, validation_freq=2, epochs=2),
        ),
        "arrays, shuffled": lambda: (fit(inputs, labels, epochs=2), fit(tf.constant(inputs), tf.constant(labels))),
        "batches of one example": lambda: fit(inputs[:7], labels[:7], batch_size=1, shuffle=False),
        "tf.data of one batch": lambda: fit(tf.data.Dataset.from_tensors((inputs, labels)), epochs=2),
        "tf.data, repeated, steps_per_epoch": lambda: fit(data.repeat(), steps_per_epoch=5, epochs=2),
        "drop_remainder": lambda: fit(batched(inputs, labels, drop_remainder=True), epochs=2),
        "auto_shard_policy DATA": lambda: fit(by_data(data), epochs=2),
        "generators": lambda: (
            fit(Batches()[place] for place in range(5)),
            fit((Batches()[place % 5] for place in range(99)), steps_per_epoch=4, epochs=2),
        ),
        "PyDataset": lambda: fit(Batches(), shuffle=False, epochs=2),
        "experimental_distribute_dataset": lambda: fit(
            strategy.experimental_distribute_dataset(data) if strategy else data, steps_per_epoch=3
        ),
        "distribute_datasets_from_function": lambda: fit(of_function(), steps_per_epoch=3),
        "fit twice, initial_epoch": lambda: (fit(data), fit(data, initial_epoch=1, epochs=3)),
        "evaluate": evaluate,
        "predict": predict,
        "train_on_batch, test_on_batch, predict_on_batch": on_batches,
    }.get(how, lambda: fit(data, epochs=2, validation_data=data))()  # fmt: skip
    return measured(model, history)


def stepped(how):
    """A train step that changes its gradients."""
    with scope():
        model = own_steps.compiled(how, dense)
    return measured(model, model.fit(batched(inputs, labels), epochs=EPOCHS, verbose=0).history)


def run(cell):
    part, _, way = cell.partition(":")
    if part == "own step":
        return stepped(way)
    if part == "call":
        return called(way)
    return looped(cell) if part.startswith("loop") else fitted(cell)


index = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
out = folder / f"{replicas} {index}"
out.mkdir(parents=True, exist_ok=True)
for cell in cells:
    if cell.endswith(":before the strategy"):
        part = cell.partition(":")[0]
        early[part] = MADE[part]()
if replicas == "Mirrored":
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
elif replicas != "one device":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
for cell in cells:
    keras.utils.set_random_seed(1)
    print("cell", cell, flush=True)
    try:
        if cell.startswith("save "):
            # What the cells load.
            part = cell.removeprefix("save ")
            model = sequential() if part == "loop model" else compiled(f"{part}:in the scope")
            if model.compiled:
                model.fit(batched(inputs, labels), verbose=0)
            model.save(folder / f"{part}.keras")
            continue
        found = run(cell)
    except Exception as error:
        if len(cells) == 1:
            raise
        code = int(getattr(error, "exit_code", 1))
        found = {"line": str(error) if code > 1 else f"{type(error).__name__}: {error}", "code": code}
    (out / f"{cell}.json").write_text(json.dumps(found))
print("end", flush=True)
