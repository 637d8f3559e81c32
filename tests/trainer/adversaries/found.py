"""The smallest of each kind of sample that ever failed, and what comes of it today.

A row whose verdict is a fault says what is wrong. It fails when that is mended: then its verdict changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.adversaries.compose import COMPUTE_LOSS, STEP
from trainer.adversaries.judge import CRASH, EQUAL, WRONG
from trainer.adversaries.sample import CALLS, MODEL, ONE, TWO, Sample


@dataclass(frozen=True)
class Row:
    """A sample, its verdict of today, and what is wrong, if anything is."""

    sample: Sample
    verdict: str
    wrong: str = ""


def _step(loss: str, before: str = "", returned: str = "{'loss': loss}") -> tuple[tuple[str, str], ...]:
    return (("train_step", STEP.format(before=before, loss=loss, after="", returned=returned)),)


def _loss(value: str) -> tuple[tuple[str, str], ...]:
    return (("compute_loss", COMPUTE_LOSS + value),)


_TOKENS = {"data": "tokens", "layers": ("L.Embedding(20, 6)",)}
_NOISE = "\n        x = x + 1e-3 * tf.random.normal(tf.shape(x))"
_IMAGES = {"data": "images", "layers": ("L.Conv2D(4, 3, activation='relu')", "L.Flatten()"), "examples": 33}
ROWS = {
    "flat loss": Row(
        Sample(way=MODEL, strategy=ONE, **_TOKENS, target="classes", loss="flat"),
        WRONG,
        "divided by examples, not by values",
    ),
    "loss of chosen values": Row(
        Sample(way=MODEL, strategy=ONE, **_TOKENS, target="ignored", loss="chosen"),
        WRONG,
        "divided by examples, not by values",
    ),
    "loss of chosen values, script": Row(
        Sample(**_TOKENS, target="ignored", loss="chosen"), WRONG, "each replica's mean counts by its examples"
    ),
    "load balancing": Row(Sample(layers=("AddBalance()",)), WRONG, "an added loss that is no mean is divided as one"),
    "added deviation": Row(Sample(layers=("AddSpread()",)), WRONG, "an added loss that is no mean is divided as one"),
    "vector target": Row(
        Sample(target="values", own=_step("by_task(y, p)")), WRONG, "the gradient counts once a replica"
    ),
    "sum with noise": Row(Sample(own=_step("sum_square(y, p)", _NOISE)), WRONG, "a sum is divided as a mean"),
    "sum": Row(
        Sample(own=_step("sum_square(y, p)", returned="{'total': loss}")), WRONG, "History has the mean of the sums"
    ),
    "masked mean of a step": Row(
        Sample(**_TOKENS, target="ignored", loss="zeroed", own=_step("masked_mean(y, p)")), WRONG, "taken for a mean"
    ),
    "step that gives each loss": Row(
        Sample(own=_step("squares(y, p)"), examples=35), CRASH, "replicas have different numbers of examples"
    ),
    "outputs compare examples": Row(Sample(layers=("Centre()",)), WRONG, "each replica compares its own"),
    "compute_loss of each": Row(Sample(own=_loss("squares(y, y_pred)")), WRONG, "the gradient counts once a replica"),
    "compute_loss of each, model": Row(
        Sample(way=MODEL, strategy=ONE, own=_loss("squares(y, y_pred)")),
        CRASH,
        "a traceback, though nothing is divided",
    ),
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
    "no examples, two workers": Row(
        Sample(strategy=TWO, **_IMAGES, compiled=(("steps_per_execution", "3"),), calls=("evaluate", "predict")), EQUAL
    ),
    "loss of a single batch": Row(Sample(own=_step("mean_square(y, p)"), calls=("train_on_batch",)), EQUAL),
}
