"""The smallest of each kind of sample that ever failed, and what comes of it today."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.adversaries.compose import COMPUTE_LOSS, STEP
from trainer.adversaries.judge import CHAOTIC, EQUAL, REFUSED
from trainer.adversaries.sample import CALLS, MODEL, ONE, PIPELINE, SESSION, TWO, Sample


@dataclass(frozen=True)
class Row:
    """A sample, and its verdict of today."""

    sample: Sample
    verdict: str


def _step(loss: str, before: str = "", returned: str = "{'loss': loss}") -> tuple[tuple[str, str], ...]:
    return (("train_step", STEP.format(before=before, loss=loss, after="", returned=returned)),)


def _keeping(kept: str, loss: str) -> tuple[tuple[str, str], ...]:
    """A step of a model that asks for the number of replicas when it is made."""
    made = "    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n"
    return (("__init__", f"{made}        self.kept = {kept}"), *_step(loss))


def _setting(value: str) -> tuple[tuple[str, str], ...]:
    """A step that sets a weight of its own."""
    made = "    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n"
    made += "        self.kept = self.add_weight(shape=(24, 1), initializer='zeros', trainable=False)"
    step = STEP.format(
        before="", loss="mean_square(y, p)", after=f"\n        self.kept.assign({value})", returned="{'loss': loss}"
    )
    return (("__init__", made), ("train_step", step))


def _loss(value: str) -> tuple[tuple[str, str], ...]:
    return (("compute_loss", COMPUTE_LOSS + value),)


_TEST_STEP = """    def test_step(self, data):
        x, y, w = keras.utils.unpack_x_y_sample_weight(data)
        return {'loss': sum_square(y, self(x, training=False))}"""
_APART = (
    ("call", "    def call(self, data, **more):\n        x, y = data\n        return super().call(x, **more)"),
    ("train_step", _step("mean_square(y, self.call(data))")[0][1].replace("p = self(x, training=True)", "pass")),
)
_REPLICAS = "tf.distribute.get_strategy().num_replicas_in_sync"
_INPUTS = {"feed": "x=arrays()[0], batch_size=B, shuffle=False", "examples": 35}
_PAIRS = "tf.reduce_mean(tf.nn.relu(1 - tf.abs(p - tf.transpose(p))))"
_TOKENS = {"data": "tokens", "layers": ("L.Embedding(20, 6)",)}
_POSITIONS = {
    "data": "tokens",
    "target": "classes",
    "layers": ("L.Embedding(20, 6)", "Positions()", "Attention()"),
    "loss": "each",
    "optimizer": "keras.optimizers.Adam(0.01, epsilon=1e-3)",
}
_NOISE = "\n        x = x + 1e-3 * tf.random.normal(tf.shape(x))"
_IMAGES = {"data": "images", "layers": ("L.Conv2D(4, 3, activation='relu')", "L.Flatten()"), "examples": 33}
_UNEVEN = {"way": MODEL, "examples": 45, "batch": 9}
ROWS = {
    "flat loss": Row(Sample(way=MODEL, strategy=ONE, **_TOKENS, target="classes", loss="flat"), EQUAL),
    "loss of chosen values": Row(Sample(way=MODEL, strategy=ONE, **_TOKENS, target="ignored", loss="chosen"), EQUAL),
    "loss of chosen values, script": Row(Sample(**_TOKENS, target="ignored", loss="chosen"), EQUAL),
    # What no replica can compute by itself is computed of the examples of all of them.
    "masked mean": Row(Sample(**_TOKENS, target="ignored", loss="masked_mean"), EQUAL),
    "masked mean, two workers": Row(
        Sample(strategy=TWO, **_TOKENS, target="ignored", loss="masked_mean", examples=35, epochs=2), EQUAL
    ),
    "masked mean, weights": Row(
        Sample(**_TOKENS, target="ignored", loss="masked_mean", weights="r.random(N)", examples=33, calls=CALLS), EQUAL
    ),
    # A Loss of Keras that a loss or a step calls by itself.
    "masked mean by a Loss": Row(
        Sample(**_TOKENS, target="ignored", loss="masked_by_object", examples=35, epochs=2, calls=("evaluate",)), EQUAL
    ),
    "masked mean by a Loss, model": Row(Sample(**_UNEVEN, **_TOKENS, target="ignored", loss="masked_by_object"), EQUAL),
    "step with a Loss that gives each": Row(
        Sample(**_TOKENS, target="classes", own=_step("each_object(y, p, sample_weight=w)"), examples=35), EQUAL
    ),
    "step with a mean by a Loss": Row(
        Sample(**_TOKENS, target="classes", own=_step("mean_by_object(y, p)"), examples=35), EQUAL
    ),
    "added sum by a Loss": Row(Sample(layers=("L.Dense(4)", "AddObject()"), examples=35), EQUAL),
    "added sum by a Loss, model": Row(Sample(**_UNEVEN, layers=("L.Dense(4)", "AddObject()")), EQUAL),
    # Rows of a weight that each replica has: an optimizer that squares them one by one would see the parts of a sum.
    "positions": Row(Sample(**_POSITIONS, examples=33, calls=("evaluate",)), EQUAL),
    "positions, model": Row(Sample(**_UNEVEN, **_POSITIONS), EQUAL),
    "positions, two workers": Row(Sample(strategy=TWO, **_POSITIONS, examples=33), EQUAL),
    # What is made late, or early.
    "session, built by fit": Row(
        Sample(way=SESSION, strategy=ONE, resumed=True, kind="subclassed", layers=("L.Dense(4)",), epochs=2), EQUAL
    ),
    "session, made outside": Row(
        Sample(way=SESSION, strategy=ONE, optimizer="keras.optimizers.Adagrad(0.05)", outside=True), EQUAL
    ),
    "made outside": Row(
        Sample(compiled=(("metrics", "['mae', Sums()]"),), outside=True, examples=35, calls=("evaluate",)), EQUAL
    ),
    "three replicas": Row(Sample(replicas=3, loss="root", examples=41, epochs=2, calls=CALLS), EQUAL),
    # A weight that a step sets.
    "queue of a step": Row(Sample(own=_setting("tf.concat([p, self.kept[:-tf.shape(p)[0]]], 0)")), REFUSED),
    "average of the weights of a step": Row(
        Sample(own=_setting("0.9 * self.kept + 0.1 * tf.reduce_sum(self.trainable_variables[0])"), examples=35), EQUAL
    ),
    "step that takes the batch apart": Row(Sample(own=_APART, examples=35), EQUAL),
    "one number of a metric": Row(
        Sample(compiled=(("metrics", "[root]"), ("weighted_metrics", "['mae']")), examples=35, epochs=2, calls=CALLS),
        EQUAL,
    ),
    "one number of a metric, two workers": Row(
        Sample(strategy=TWO, compiled=(("metrics", "[root]"),), examples=35, epochs=2, calls=("evaluate",)), EQUAL
    ),
    "two outputs, one gathered": Row(
        Sample(data="pairs", target="both", loss="{'kind': each, 'size': root}", examples=33, calls=("evaluate",)),
        EQUAL,
    ),
    # XLA computes nothing of a step for which there are no data any more.
    "two outputs by XLA, data of unknown length": Row(
        Sample(
            data="pairs",
            target="both",
            loss="{'kind': each, 'size': 'mae'}",
            compiled=(("jit_compile", "True"),),
            feed="rows().filter(lambda *_: True).batch(B)",
            examples=33,
            batch=12,
        ),
        EQUAL,
    ),
    # The last batch of the data is smaller, and not the last of an execution.
    "loss of all examples, several steps, repeated data": Row(
        Sample(
            loss="root",
            compiled=(("steps_per_execution", "3"),),
            feed="batched().repeat(), steps_per_epoch=-(-N // B)",
            examples=35,
            epochs=2,
        ),
        EQUAL,
    ),
    "layer of all examples, several steps, repeated data": Row(
        Sample(layers=("Centre()",), compiled=(("steps_per_execution", "3"),), feed="batched().repeat(2)", examples=35),
        EQUAL,
    ),
    # Keras counts an update at the end, and what accumulates is used by that count.
    "accumulation by SGD, data of unknown length": Row(
        Sample(
            layers=("L.Dense(4, 'tanh')",),
            feed="rows().filter(lambda *_: True).batch(B)",
            examples=24,
            batch=12,
            optimizer="keras.optimizers.SGD(0.05, gradient_accumulation_steps=3)",
            epochs=3,
        ),
        EQUAL,
    ),
    "compute_loss that leaves out": Row(
        Sample(**_TOKENS, target="ignored", own=_loss("masked_mean(y, y_pred)"), examples=35), EQUAL
    ),
    "load balancing": Row(Sample(layers=("AddBalance()",)), EQUAL),
    # Of the few that are held out, all choose one expert.
    "load balancing, few held out": Row(
        Sample(
            way=MODEL,
            target="values",
            layers=("AddBalance()", "L.Dense(8, 'relu', kernel_regularizer='l2')"),
            examples=35,
            batch=12,
            epochs=2,
        ),
        EQUAL,
    ),
    "load balancing, all alike": Row(
        Sample(
            data="images",
            target="class",
            layers=("L.MaxPooling2D(2, padding='same')", "L.GlobalAveragePooling2D()", "AddBalance()"),
            loss="sum_of",
            examples=41,
        ),
        EQUAL,
    ),
    "added deviation": Row(Sample(layers=("AddSpread()",)), EQUAL),
    "added deviation, own step": Row(
        Sample(layers=("AddSpread()",), own=_step("self.compute_loss(x, y, p, w)"), examples=35), EQUAL
    ),
    "vector target": Row(Sample(target="values", own=_step("by_task(y, p)"), examples=35), EQUAL),
    # As far off as another seed of the noise takes it.
    "sum with noise": Row(Sample(own=_step("sum_square(y, p)", _NOISE)), CHAOTIC),
    "sum": Row(Sample(own=_step("sum_square(y, p)", returned="{'total': loss}")), EQUAL),
    "masked mean of a step": Row(
        Sample(**_TOKENS, target="ignored", loss="zeroed", own=_step("masked_mean(y, p)")), REFUSED
    ),
    "step that gives each loss": Row(Sample(own=_step("squares(y, p)"), examples=35), EQUAL),
    # A mask that nearly equal losses hide, and gradients show.
    "masked mean of nearly equal losses": Row(
        Sample(
            data="tokens",
            layers=("L.Embedding(20, 6, mask_zero=True)", "L.LSTM(5, return_sequences=True)"),
            target="ignored",
            loss="chosen",
            own=_step("masked_mean(y, p)"),
        ),
        REFUSED,
    ),
    "step with penalties of weights": Row(
        Sample(
            layers=("L.Dense(8, 'tanh', kernel_regularizer='l2')",),
            own=_step("self.compute_loss(x=x, y=y, y_pred=p, sample_weight=w)"),
            examples=35,
        ),
        EQUAL,
    ),
    # As in the guide of Keras; the last batch has one example.
    "metrics that a step updates": Row(
        Sample(
            compiled=(("metrics", "['mae']"),),
            own=_step("self.compute_loss(x=x, y=y, y_pred=p)", returned="tracked(self, loss, y, p)"),
            examples=33,
        ),
        EQUAL,
    ),
    # Behind the end of data whose length nobody knows, a step has no examples at all.
    "metrics that a step updates, data of unknown length": Row(
        Sample(
            feed="rows().filter(lambda *_: True).batch(B)",
            compiled=(("metrics", "['mae']"),),
            own=_step("self.compute_loss(x=x, y=y, y_pred=p)", returned="tracked(self, loss, y, p)"),
            examples=33,
            epochs=2,
        ),
        EQUAL,
    ),
    "sum of inputs alone": Row(Sample(**_INPUTS, own=_step("tf.reduce_sum(tf.square(p - x[:, :1]))")), EQUAL),
    "pairs of inputs alone": Row(Sample(**_INPUTS, own=_step(_PAIRS)), REFUSED),
    # The number of replicas is one within a step.
    "divided by the number of replicas": Row(Sample(own=_step(f"mean_square(y, p) / {_REPLICAS}"), examples=35), EQUAL),
    "loss divided by the number of replicas": Row(
        Sample(loss=f"lambda y, p: mean_square(y, p) / {_REPLICAS}", examples=35, calls=("evaluate",)), EQUAL
    ),
    "loss divided by the number of replicas, model": Row(
        Sample(**_UNEVEN, loss=f"lambda y, p: mean_square(y, p) / {_REPLICAS}"), EQUAL
    ),
    "compute_loss divided by the number of replicas": Row(
        Sample(**_UNEVEN, own=_loss(f"mean_square(y, y_pred) / {_REPLICAS}")), EQUAL
    ),
    "added loss divided by the number of replicas": Row(Sample(**_UNEVEN, layers=("AddShare()",)), EQUAL),
    "average loss": Row(
        Sample(own=_step("tf.nn.compute_average_loss(squares(y, p))"), examples=35, calls=("train_on_batch",)), EQUAL
    ),
    "average loss of a size that is given": Row(
        Sample(own=_step("tf.nn.compute_average_loss(squares(y, p), global_batch_size=B)"), examples=35), EQUAL
    ),
    "reduced by itself": Row(
        Sample(own=_step("tf.distribute.get_replica_context().all_reduce('MEAN', mean_square(y, p))")), REFUSED
    ),
    "reduced by itself, one replica": Row(
        Sample(strategy=ONE, own=_step("tf.distribute.get_replica_context().all_reduce('MEAN', mean_square(y, p))")),
        EQUAL,
    ),
    "kept number of replicas": Row(Sample(own=_keeping(_REPLICAS, "mean_square(y, p) / self.kept")), REFUSED),
    "kept size of the whole batch": Row(
        Sample(own=_keeping(f"B // {_REPLICAS} * {_REPLICAS}", "tf.reduce_sum(squares(y, p)) / self.kept")), EQUAL
    ),
    "kept number of replicas for something else": Row(Sample(own=_keeping(_REPLICAS, "sum_square(y, p)")), EQUAL),
    # A step for which there are no data any more is not begun.
    "count of steps, data of unknown length": Row(
        Sample(
            layers=("Counted()",),
            feed="rows().filter(lambda *_: True).batch(B)",
            compiled=(("steps_per_execution", "3"),),
            epochs=2,
        ),
        EQUAL,
    ),
    # The last batch has one example.
    "outputs compare examples": Row(
        Sample(
            layers=("Centre()", "L.Dense(4, 'tanh')", "Neighbours()"),
            replicas=3,
            examples=33,
            epochs=2,
            calls=("evaluate", "predict", "test_on_batch", "again"),
            fit=("validation_data=rows().take(17).batch(8)",),
        ),
        EQUAL,
    ),
    "outputs compare examples, two workers": Row(
        Sample(
            strategy=TWO,
            layers=("L.Dense(4, 'tanh')", "Block()", "Deviation()"),
            examples=33,
            epochs=2,
            calls=("evaluate", "predict"),
        ),
        EQUAL,
    ),
    "outputs compare examples, model": Row(
        Sample(way=MODEL, layers=("Block()", "Scaled()"), examples=35, batch=12, epochs=2), EQUAL
    ),
    "outputs compare examples, own step": Row(
        Sample(layers=("Neighbours()",), own=_step("mean_square(y, p)"), examples=35, calls=("evaluate",)), EQUAL
    ),
    # The first parts of the data have the same tokens, and so the same largest number.
    "outputs compare tokens": Row(
        Sample(
            data="tokens",
            target="classes",
            layers=("L.Embedding(20, 6)", "Scaled()"),
            policy="float64",
            examples=41,
            loss="mean_by_object",
            optimizer="keras.optimizers.Adam(0.01)",
        ),
        EQUAL,
    ),
    "weights of the examples": Row(
        Sample(layers=("OwnNorm()", "L.Dense(4)", "Codebook()"), examples=33, epochs=2, calls=("predict",)), EQUAL
    ),
    "weights of the examples, two workers": Row(
        Sample(strategy=TWO, layers=("OwnNorm()", "Running()"), examples=33, epochs=2, calls=("evaluate",)), EQUAL
    ),
    "weights of the examples, model": Row(
        Sample(way=MODEL, resumed=True, layers=("Codebook()", "OwnNorm()"), examples=35, epochs=2), EQUAL
    ),
    "compute_loss of each task": Row(Sample(target="values", own=_loss("by_task(y, y_pred)"), examples=35), EQUAL),
    "a worker without examples to look at": Row(
        Sample(
            strategy=TWO,
            target="yes",
            own=(("test_step", _TEST_STEP),),
            calls=("test_on_batch",),
        ),
        EQUAL,
    ),
    "own step with a compute_loss that sums": Row(
        Sample(own=(*_loss("sum_square(y, y_pred)"), *_step("self.compute_loss(x, y, p, w)")), examples=35), EQUAL
    ),
    "compute_loss of each": Row(Sample(own=_loss("squares(y, y_pred)")), EQUAL),
    "compute_loss of each, model": Row(Sample(way=MODEL, strategy=ONE, own=_loss("squares(y, y_pred)")), EQUAL),
    # Of all examples, in parts of different sizes.
    "values of all replicas": Row(Sample(**_UNEVEN, **_TOKENS, target="ignored", loss="chosen"), EQUAL),
    "masked mean of all replicas": Row(Sample(**_UNEVEN, **_TOKENS, target="ignored", loss="masked_mean"), EQUAL),
    "weights of one number": Row(
        Sample(**_UNEVEN, loss="root", weights="(1 + np.arange(N) % 3).astype('float32')"), EQUAL
    ),
    "metrics of the batch": Row(
        Sample(
            **_UNEVEN,
            data="pairs",
            target="both",
            loss="{'kind': mean_of, 'size': root}",
            compiled=(("metrics", "{'kind': ['accuracy', mean_of], 'size': [largest, 'mae']}"),),
        ),
        EQUAL,
    ),
    "loss that is not reduced": Row(Sample(**_UNEVEN, loss="keras.losses.MeanSquaredError(reduction=None)"), EQUAL),
    "compute_loss of all replicas": Row(Sample(**_UNEVEN, own=_loss("root(y, y_pred)")), EQUAL),
    "compute_loss of each, replicas": Row(Sample(**_UNEVEN, own=_loss("squares(y, y_pred)")), EQUAL),
    # A replica without examples computes on one that stands in for none.
    "no examples, convolution": Row(Sample(**_IMAGES), EQUAL),
    "no examples, added mean": Row(Sample(layers=("AddMean()",), examples=33), EQUAL),
    "no examples, own mean": Row(Sample(own=_loss("mean_square(y, y_pred)"), examples=33), EQUAL),
    "no examples, validation": Row(
        Sample(layers=("AddMean()",), fit=("validation_data=rows().take(9).batch(8)",)), EQUAL
    ),
    "no examples, prediction": Row(
        Sample(
            data="series",
            layers=("L.LSTM(5)",),
            examples=33,
            compiled=(("steps_per_execution", "2"),),
            calls=("predict",),
        ),
        EQUAL,
    ),
    "no examples, synchronized": Row(
        Sample(
            data="images",
            target="yes",
            layers=("L.Conv2D(4, 3)", "L.BatchNormalization(momentum=0.5)", "L.Flatten()"),
            loss="'binary_crossentropy'",
            compiled=(("metrics", "['accuracy', keras.metrics.AUC()]"),),
            examples=33,
            epochs=2,
            calls=CALLS,
        ),
        EQUAL,
    ),
    "no examples, two outputs": Row(
        Sample(data="pairs", target="both", loss="{'kind': each, 'size': 'mae'}", examples=33, calls=("evaluate",)),
        EQUAL,
    ),
    "no examples, two outputs of one batch": Row(
        Sample(data="pairs", target="both", loss="{'kind': each, 'size': 'mae'}", calls=("test_on_batch",)), EQUAL
    ),
    "no examples, two workers": Row(
        Sample(strategy=TWO, **_IMAGES, compiled=(("steps_per_execution", "3"),), calls=("evaluate", "predict")), EQUAL
    ),
    "loss of a single batch": Row(Sample(own=_step("mean_square(y, p)"), calls=("train_on_batch",)), EQUAL),
    # Labels of other types, which are gathered.
    "bits gathered": Row(Sample(target="bits", loss="root_of_numbers", examples=36, calls=("evaluate",)), EQUAL),
    "bits gathered, model": Row(Sample(**_UNEVEN, target="bits", loss="root_of_numbers"), EQUAL),
    "small numbers gathered": Row(
        Sample(strategy=TWO, target="small", loss="root_of_numbers", examples=36, calls=("evaluate",)), EQUAL
    ),
    "ragged labels gathered": Row(
        Sample(target="ragged", loss="root_of_rows", examples=36, calls=("evaluate",)), EQUAL
    ),
    "ragged labels gathered, two workers": Row(
        Sample(strategy=TWO, target="ragged", loss="root_of_rows", examples=36, calls=("evaluate",)), EQUAL
    ),
    "ragged labels, model": Row(Sample(**_UNEVEN, target="ragged", loss="root_of_rows"), REFUSED),
    "texts gathered": Row(
        Sample(target="texts", loss="lambda y, p: p**2", compiled=(("metrics", "[root_of_texts]"),)), REFUSED
    ),
    "pixels, two workers": Row(
        Sample(
            strategy=TWO, data="pixels", layers=("L.Rescaling(1 / 255)", "L.Flatten()"), examples=33, calls=("predict",)
        ),
        EQUAL,
    ),
    "sparse labels": Row(Sample(target="sparse", loss="squares_of_dense", examples=36, calls=("evaluate",)), EQUAL),
    "sparse labels gathered": Row(Sample(target="sparse", loss="root_of_dense"), REFUSED),
    "sparse labels that are no others": Row(Sample(target="sparse", loss="root_of_sparse"), REFUSED),
    "sparse labels, model": Row(Sample(**_UNEVEN, target="sparse", loss="root_of_sparse"), REFUSED),
    "embedding in a pipeline": Row(
        Sample(
            way=MODEL,
            strategy=PIPELINE,
            **_TOKENS,
            target="classes",
            loss="each",
            optimizer="keras.optimizers.Adam(0.01)",
        ),
        EQUAL,
    ),
    "a count of calls in a pipeline": Row(
        Sample(way=MODEL, strategy=PIPELINE, layers=("L.Dense(8, 'tanh')", "Counted()")), REFUSED
    ),
    # What two workers are given.
    "looked at again with a batch of one example": Row(Sample(compiled=(("metrics", "[close]"),), examples=81), EQUAL),
    "later fit without weights": Row(
        Sample(
            target="class",
            loss="mean_by_object",
            fit=("class_weight={0: 1.0, 1: 0.5, 2: 2.0, 3: 1.5}",),
            calls=("later",),
            examples=40,
            epochs=2,
        ),
        EQUAL,
    ),
    "files, a part held out": Row(
        Sample(
            strategy=TWO,
            feed="records().take(24).batch(B), validation_data=records().skip(24).batch(B)",
            examples=40,
            epochs=2,
            calls=("predict",),
        ),
        EQUAL,
    ),
    "files, predicted": Row(Sample(strategy=TWO, calls=("predict_files",), examples=41), EQUAL),
    "own shard": Row(Sample(strategy=TWO, feed="rows().shard(*own_part()).batch(B)"), REFUSED),
    "own shard, a loss for each output": Row(
        Sample(
            strategy=TWO,
            feed="rows().shard(*own_part()).batch(B).with_options(OFF)",
            data="pairs",
            target="both",
            loss="{'kind': each, 'size': 'mae'}",
            optimizer="keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5))",
            examples=40,
            epochs=2,
        ),
        EQUAL,
    ),
    "own shard that counts": Row(
        Sample(strategy=TWO, feed="rows().shard(*own_part()).batch(B).with_options(OFF)", examples=35, epochs=2), EQUAL
    ),
}
