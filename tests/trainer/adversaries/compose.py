"""A seed gives a sample: parts that users combine, drawn at random so that they fit together.

What it cannot say yet: dropout and other chance that counts, half precision, ragged and sparse inputs, loops of one's
own in a session, callbacks that write files, several workers of ParameterServer, and data that are not inputs, labels
and weights.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from trainer.adversaries.sample import (
    CALLS,
    CENTRAL,
    MIRRORED,
    MODEL,
    ONE,
    PIPELINE,
    PREDICT_FILES,
    SCRIPT,
    SERVERS,
    SESSION,
    TWO,
    Sample,
)

WAYS = {
    (MODEL, ONE): 2, (MODEL, MIRRORED): 5, (SCRIPT, MIRRORED): 12, (SESSION, MIRRORED): 1, (SESSION, ONE): 1,
    (MODEL, TWO): 1, (SCRIPT, TWO): 1,
}  # fmt: skip
"""How often each is drawn."""
RESUMED = 0.15
"""Of the samples that can be."""

_DENSE = ("", "", "", ", kernel_regularizer='l2'", ", activity_regularizer='l2'", ", kernel_constraint='max_norm'",
          ", trainable=False")  # fmt: skip
ANYWHERE = {
    "L.BatchNormalization()": 3, "L.BatchNormalization(momentum=0.5)": 3, "L.LayerNormalization()": 3,
    "L.Activation('tanh')": 3, "Residual()": 3, "AddMean()": 3, "L.GroupNormalization(1)": 2,
    "L.UnitNormalization()": 2, "L.ActivityRegularization(0.001)": 2, "Counted()": 1, "AddSum()": 1, "AddObject()": 1,
    "AddSpread()": 1,
    "AddBalance()": 1, "Centre()": 1, "Scaled()": 1, "Running()": 1, "Deviation()": 1,
    "Neighbours()": 1, "OwnNorm()": 1, "Codebook()": 1, "Block()": 1,
    "Tied()": 2, "Penalized()": 2, "L.Lambda(lambda h: h * 0.5 + 0.1)": 1, "L.Dense(4, 'tanh', use_bias=False)": 1,
    "L.BatchNormalization(renorm=False, center=False)": 1, "L.SpectralNormalization(L.Dense(5))": 1, "L.PReLU()": 1,
    "L.Dense(5, 'tanh', dtype='float64')": 1, "L.GaussianNoise(0.0)": 1, "L.Dropout(0.0)": 1,
}  # fmt: skip
SERIES = ("L.LSTM(5, return_sequences=True)", "L.GRU(5, return_sequences=True)", "L.Conv1D(5, 3, padding='same')",
          "L.Bidirectional(L.GRU(3, return_sequences=True))", "L.TimeDistributed(L.Dense(5, 'tanh'))", "Attention()",
          "L.SimpleRNN(5, return_sequences=True)", "Positions()")  # fmt: skip
TO_FLAT = (
    "L.LSTM(5)",
    "L.GRU(5)",
    "L.GlobalAveragePooling1D()",
    "L.Bidirectional(L.LSTM(3))",
    "L.GlobalMaxPooling1D()",
)
IMAGES = ("L.Conv2D(4, 3, activation='relu')", "L.Conv2D(4, 3, padding='same')",
          "L.SeparableConv2D(4, 3, padding='same')", "L.DepthwiseConv2D(3, padding='same')",
          "L.MaxPooling2D(2, padding='same')")  # fmt: skip

_CROSS = "keras.losses.SparseCategoricalCrossentropy(from_logits=True{})"
LOSSES = {
    "value": ("'mse'", "'mae'", "keras.losses.Huber()", "keras.losses.MeanSquaredError(reduction='sum')", "squares",
              "mean_square", "sum_square", "root", "largest", "OwnLoss()",
              "OwnLoss(reduction='mean_with_sample_weight')", "'log_cosh'"),
    "single": ("'mse'", "keras.losses.Huber()", "'cosine_similarity'", "'kl_divergence'", "mean_square", "root",
               "OwnLoss()"),
    "values": ("'mse'", "'mae'", "squares", "mean_square", "sum_square", "root", "by_task", "OwnLoss()",
               "keras.losses.CosineSimilarity()", "keras.losses.MeanSquaredError(reduction='sum')"),
    "yes": ("'binary_crossentropy'", "keras.losses.BinaryCrossentropy(label_smoothing=0.1)", "'mse'",
            "keras.losses.BinaryFocalCrossentropy()", "keras.losses.Dice()", "keras.losses.Hinge()", "mean_square"),
    "class": (_CROSS.format(""), _CROSS.format(", reduction='sum'"),
              _CROSS.format(", reduction='mean_with_sample_weight'"), _CROSS.format(", ignore_class=0"), "each",
              "mean_of", "sum_of", "each_by_object", "mean_by_object"),
    "classes": (_CROSS.format(""), _CROSS.format(", reduction='sum'"), _CROSS.format(", ignore_class=0"), "each",
                "mean_of", "sum_of", "flat", "each_by_object", "mean_by_object"),
    "ignored": (_CROSS.format(", ignore_class=-100"), "zeroed", "chosen", "masked_mean", "masked_by_object"),
    "both": (f"{{'kind': {_CROSS.format('')}, 'size': 'mse'}}", "{'kind': each, 'size': 'mae'}",
             f"{{'kind': {_CROSS.format('')}, 'size': mean_square}}"),
}  # fmt: skip
METRICS = {
    "value": ("['mae']", "['mse', 'mae']", "['mae', keras.metrics.RootMeanSquaredError()]", "[close]", "[Largest()]",
              "[Sums()]", "[keras.metrics.R2Score()]"),
    "single": ("['mae']", "['cosine_similarity']", "[keras.metrics.RootMeanSquaredError()]", "[Largest()]"),
    "values": ("['mae']", "['cosine_similarity']", "[keras.metrics.R2Score()]", "[close]", "[Largest()]",
               "[keras.metrics.PearsonCorrelation(axis=0)]", "[keras.losses.dice]", "[keras.losses.Huber()]"),
    "yes": ("['accuracy']", "['accuracy', keras.metrics.AUC()]", "[share]", "[keras.metrics.Precision(), 'recall']",
            "[keras.metrics.F1Score(threshold=0.5)]", "[Sums()]", "[keras.metrics.MeanIoU(2)]",
            "[keras.metrics.PrecisionAtRecall(0.5)]"),
    "class": ("['accuracy']", "[keras.metrics.SparseTopKCategoricalAccuracy(2)]",
              "['accuracy', keras.metrics.SparseCategoricalCrossentropy(from_logits=True)]"),
    "classes": ("['accuracy']",), "both": ("{'kind': 'accuracy', 'size': 'mae'}", "{'size': ['mae', Sums()]}"),
}  # fmt: skip
OPTIMIZERS = (
    "keras.optimizers.SGD(0.05)", "keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)",
    "keras.optimizers.Adam(0.01)", "keras.optimizers.AdamW(0.01)", "keras.optimizers.RMSprop(0.005)",
    "keras.optimizers.SGD(0.1, clipnorm=0.1)",
    "keras.optimizers.SGD(0.1, global_clipnorm=0.1)", "keras.optimizers.Adam(0.01, clipvalue=0.01)",
    "keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5)",
    "keras.optimizers.Adam(0.01, gradient_accumulation_steps=2)",
    "keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5))",
    "keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))",
    "keras.optimizers.Lion(0.003)", "keras.optimizers.Adafactor(0.01)", "keras.optimizers.Nadam(0.01)",
    "keras.optimizers.Ftrl(0.05)", "keras.optimizers.Adagrad(0.05)", "keras.optimizers.Adamax(0.01)",
    "keras.optimizers.Adadelta(0.5)", "keras.optimizers.Adam(0.01, amsgrad=True, weight_decay=0.01)",
    "keras.optimizers.SGD(0.05, gradient_accumulation_steps=3, clipnorm=0.1)",
    "keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.0, 9, warmup_target=0.02, warmup_steps=3))",
)  # fmt: skip
WEIGHTS = ("np.linspace(0.2, 2, N).astype('float32')", "(r.random(N) > np.arange(N) % B / B).astype('float32')")
"""Of examples: some are 0 in the second."""

COMPUTE_LOSS = (
    "    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):\n        return "
)
_PENALTY = "super().compute_loss(x, y, y_pred, sample_weight, training) + 0.1 * tf.reduce_mean(tf.square(y_pred))"
STEP = """    def train_step(self, data):
        x, y, w = keras.utils.unpack_x_y_sample_weight(data){before}
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = {loss}
        v = self.trainable_variables
        g = tape.gradient(loss, v){after}
        self.optimizer.apply_gradients(zip(g, v))
        return {returned}"""
TEST = """    def test_step(self, data):
        x, y, w = keras.utils.unpack_x_y_sample_weight(data)
        p = self(x, training=False)
        return {returned}"""
BEFORE = {
    "": 6,
    "\n        x = x + 1e-3 * tf.random.normal(tf.shape(x))": 3,
}
AFTER = {
    "": 6,
    "\n        g, _ = tf.clip_by_global_norm(g, 0.1)": 1,
    "\n        g = [k / (tf.norm(k) + 1e-3) for k in g]": 1,
}
BY_METHOD = {
    "value": ("mean_square", "sum_square", "root", "largest", "squares"),
    "single": ("mean_square", "sum_square", "root", "keras.losses.huber"),
    "values": ("mean_square", "sum_square", "by_task", "root", "squares"),
    "yes": ("mean_square", "sum_square", "keras.losses.binary_crossentropy"),
    "class": ("mean_of", "sum_of", "each", "each_object", "mean_by_object"),
    "classes": ("mean_of", "sum_of", "flat", "each_object", "mean_by_object"),
    "ignored": ("masked_mean", "chosen", "zeroed", "masked_by_object"),
}  # fmt: skip
"""Losses that a method of the user's own computes."""
RETURNED = {
    "{'loss': loss}": 3, "{'total': loss}": 1, "self.compute_metrics(x, y, p, w) | {'loss': loss}": 2,
    "tracked(self, loss, y, p)": 2,
}  # fmt: skip

FEEDS = {
    "batched()": 5, "x=arrays()[0], y=arrays()[1], sample_weight=arrays()[2], batch_size=B, shuffle=False": 4,
    "rows().filter(lambda *_: True).batch(B)": 1, "rows().batch(B, drop_remainder=True)": 1,
    "batched().repeat(), steps_per_epoch=-(-N // B)": 1, "generated(), steps_per_epoch=-(-N // B)": 1,
    "Batches(), shuffle=False": 1,
}  # fmt: skip
SHARED = {
    "records().take(24).batch(B), validation_data=records().skip(24).batch(B)": 3,
    "records().repeat().batch(B), steps_per_epoch=-(-N // B)": 1,
    "rows().shard(*own_part()).batch(B).with_options(OFF)": 3, "rows().shard(*own_part()).batch(B)": 1,
    "x=arrays()[0], y=arrays()[1], sample_weight=arrays()[2], batch_size=B": 1,
}  # fmt: skip
"""Feeds that two workers may get wrong."""
_EXECUTION: tuple[Mapping[str, str], ...] = (
    {"steps_per_execution": "3"}, {"run_eagerly": "True"}, {"jit_compile": "True"},
)  # fmt: skip
FIT = (
    "validation_data=rows().take(17).batch(8)",
    "callbacks=[keras.callbacks.ReduceLROnPlateau('loss', patience=1, min_delta=9)]",
    "callbacks=[keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)]",
    "callbacks=[Seen()]", "callbacks=[Seen()], validation_data=batched().take(3)",
    "callbacks=[keras.callbacks.EarlyStopping('loss', patience=0, min_delta=9, restore_best_weights=True)]",
    "callbacks=[keras.callbacks.SwapEMAWeights()]",
    "validation_data=arrays()[:2], validation_batch_size=7",
    "validation_data=batched().repeat(), validation_steps=3", "validation_data=rows().batch(16), validation_freq=2",
)  # fmt: skip


def compose(seed: int) -> Sample:
    """The sample of this seed."""
    return _Draw(random.Random(f"numbers {seed}")).sample()


OF_PIPELINE = {
    "value": ("'mse'", "'mae'", "keras.losses.Huber()", "squares", "'log_cosh'"),
    "values": ("'mse'", "'mae'", "squares", "keras.losses.CosineSimilarity()"),
    "yes": ("'binary_crossentropy'", "keras.losses.BinaryFocalCrossentropy()", "keras.losses.Hinge()"),
    "class": (_CROSS.format(""), "each"), "classes": (_CROSS.format(""), "each"),
}  # fmt: skip
"""Losses that a pipeline takes, and parameter servers."""
NOT_OF_PIPELINE = (
    "Normalization(r", "Normalization(m", "Normalization()", "Spectral", "Counted", "AddSum", "AddObject", "AddSpread",
    "AddBalance", "Centre", "Scaled", "Running", "Deviation", "Neighbours", "OwnNorm", "Codebook", "Block", "mask_zero",
    "global_clipnorm", "subclassed", "pairs", "'ignored'", "'single'",
)  # fmt: skip
"""What it refuses, and BatchNormalization, of which its documents say that it differs."""
NOT_OF_CENTRAL = (
    "BatchNorm", "Spectral", "Counted", "Running", "Codebook", "Dropout", "Noise", "constraint", "Nadam", "LossScale",
    "accumulation",
)  # fmt: skip
"""What CentralStorage refuses, as TensorFlow lets no replica set a variable there."""


def compose_central(seed: int) -> Sample:
    """A sample that CentralStorage is to take."""
    return replace(_without(NOT_OF_CENTRAL, random.Random(f"central {seed}")), strategy=CENTRAL)


def compose_pipeline(seed: int) -> Sample:
    """A sample that a pipeline of two stages is to take."""
    return _of_single_examples(PIPELINE, NOT_OF_PIPELINE, random.Random(f"pipeline {seed}"))


NOT_OF_SERVERS = (
    "mask_zero", "pairs", "'ignored'", "'single'", "weighted_metrics", "LossScale", "accumulation", "Tied", "Largest",
    "Sums", "float64", "AddObject", "global_clipnorm", "Nadam",
)  # fmt: skip
"""What it refuses, and what tf_keras writes otherwise or does not have."""


def compose_servers(seed: int) -> Sample:
    """A sample of tf_keras that one worker and a parameter server are to take."""
    return _of_single_examples(SERVERS, NOT_OF_SERVERS, random.Random(f"servers {seed}"))


def _of_single_examples(strategy: str, refused: Sequence[str], chance: random.Random) -> Sample:
    """A sample for a strategy that takes the mean of one loss over single examples, without weights."""
    sample = _without(refused, chance)
    loss = chance.choice(OF_PIPELINE[sample.target])
    return replace(sample, strategy=strategy, resumed=False, loss=loss, weights="", own=())


def _without(refused: Sequence[str], chance: random.Random) -> Sample:
    """The next one for `--model` that has none of these parts."""
    while True:
        sample = _Draw(chance).sample()
        if sample.way == MODEL and not any(one in str(sample) for one in refused):
            return sample


T = TypeVar("T")


class _Draw:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def sample(self) -> Sample:
        one, often = self._chance.choice, self._often
        way, strategy = often(WAYS)
        data = often({"vectors": 5, "tokens": 4, "series": 2, "images": 3, "pairs": 2, "words": 1})
        target = self._target(data)
        own = {} if data == "pairs" else self._own(way, data, target)
        compiled = {}
        if target in METRICS and self._hits(0.4):
            compiled[one(("metrics", "metrics", "weighted_metrics"))] = one(METRICS[target])
        if data == "pairs" and self._hits(0.5):
            compiled["loss_weights"] = "{'kind': 0.3, 'size': 2.0}"
        if way == SCRIPT and self._hits(0.15):
            compiled |= one(_EXECUTION[: 2 if "random" in str(own) else 3])
        scripted = way == SCRIPT
        feed = often(FEEDS | SHARED if strategy == TWO else FEEDS) if scripted else Sample.feed
        fit = [one(FIT)] if scripted and "validation" not in feed and self._hits(0.25) else []
        if scripted and feed.startswith("x=") and not fit and data != "pairs" and self._hits(0.3):
            fit.append("validation_split=0.3")
        # Where a map, as that of class weights, stands behind batch(), TensorFlow cuts the last batch of OFF in two.
        weighs = target == "class" and not feed.startswith("gen") and "OFF" not in feed
        if scripted and self._hits(0.2) and weighs:
            fit.append("class_weight={0: 1.0, 1: 0.5, 2: 2.0, 3: 1.5}")
        return Sample(
            way=way, strategy=strategy, data=data, target=target,
            resumed=way != SCRIPT and self._hits(RESUMED),
            weights=one(WEIGHTS) if data != "pairs" and "class_weight" not in "".join(fit) and self._hits(0.2) else "",
            layers=self._layers(data, target),
            kind="functional" if data == "pairs" else often({"functional": 3, "sequential": 2, "subclassed": 1}),
            loss=one(LOSSES[target]), optimizer=one(OPTIMIZERS),
            compiled=tuple(compiled.items()), own=tuple(own.items()),
            outside=way != MODEL and self._hits(0.25), policy=often({"": 15, "float64": 1}),
            replicas=often({2: 4, 3: 1}) if strategy == MIRRORED else 2,
            feed=feed, fit=tuple(fit),
            calls=self._calls(strategy) if scripted else (),
            examples=one((32, 33, 35, 40, 41)), batch=one((8, 8, 12)), epochs=one((1, 2, 2)),
        )  # fmt: skip

    def _calls(self, strategy: str) -> tuple[str, ...]:
        calls = tuple(call for call in CALLS if self._hits(0.12))
        return (*calls, PREDICT_FILES) if strategy == TWO and self._hits(0.2) else calls

    def _target(self, data: str) -> str:
        if data == "pairs":
            return "both"
        if data == "tokens":
            return self._chance.choice(("classes", "ignored"))
        return self._chance.choice(("value", "value", "values", "values", "yes", "yes", "class", "class", "single"))

    def _layers(self, data: str, target: str) -> tuple[str, ...]:
        one = self._chance.choice
        found: list[str] = []
        if data == "tokens":
            found.append(one(("L.Embedding(20, 6)", "L.Embedding(20, 6, mask_zero=True)")))
        inner: Sequence[str] = {"images": IMAGES, "series": SERIES, "tokens": SERIES}.get(data, ())
        for _ in range(self._chance.randrange(3) if inner else 0):
            found.append(one(inner) if self._hits(0.7) else self._often(ANYWHERE))
        if data == "tokens":
            return tuple(found)
        if data == "words":
            found += ["L.StringLookup(vocabulary=['a', 'bc'])", "L.Embedding(4, 5)", one(TO_FLAT)]
        if data == "images":
            found.append(one(("L.Flatten()", "L.GlobalAveragePooling2D()")))
        if data == "series":
            found.append(one(TO_FLAT))
        for _ in range(self._chance.randrange(1, 4)):
            dense = f"L.Dense({one((4, 8))}, {one(('None', repr('tanh'), repr('relu')))}{one(_DENSE)})"
            found.append(dense if self._hits(0.6) else self._often(ANYWHERE))
        return tuple(found)

    def _own(self, way: str, data: str, target: str) -> dict[str, str]:
        """Methods of the model."""
        one, often = self._chance.choice, self._often
        own = {}
        loss = f"{one(BY_METHOD[target])}(y, {{p}})"
        if self._hits(0.15):
            own["compute_loss"] = COMPUTE_LOSS + (loss.format(p="y_pred") if self._hits(0.7) else _PENALTY)
        if way == SCRIPT and self._hits(0.6):
            losses = {"self.compute_loss(x=x, y=y, y_pred=p, sample_weight=w)": 2, loss.format(p="p"): 6}
            losses[f"{loss.format(p='p')} / tf.distribute.get_strategy().num_replicas_in_sync"] = 1
            before = often(BEFORE) if data in ("vectors", "images", "series") else ""
            step = STEP.format(before=before, loss=often(losses), after=often(AFTER), returned=often(RETURNED))
            own["train_step"] = step
        if way == SCRIPT and self._hits(0.1):
            own["test_step"] = TEST.format(returned="{'loss': " + loss.format(p="p") + "}")
        return own

    def _hits(self, probability: float) -> bool:
        return self._chance.random() < probability

    def _often(self, counts: Mapping[T, int]) -> T:
        return self._chance.choices(list(counts), list(counts.values()))[0]
