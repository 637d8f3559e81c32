"""The table of scripts: how each part of a model is made, how it is trained, and what has to come of it.

The script is `scripts/ways.py`. Plain Python runs it on one device, and the trainer with several replicas: a cell has
the same history and weights, or ends with one line. A cell is PART:WAY; to add one, add it here and to the script.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

TOLERANCE = 1e-5
IN_SCOPE, BEFORE, OUTSIDE, BY_NAME = "in the scope", "before the strategy", "outside the scope", "by name"
CONFIG, CLONE, LOAD, LOAD_OUTSIDE = "from_config", "clone_model", "load_model", "load_model, outside"
WAYS = (IN_SCOPE, BEFORE, OUTSIDE, BY_NAME, CONFIG, CLONE, LOAD, LOAD_OUTSIDE)
TWO, MIRRORED = REPLICAS = "2 workers", "Mirrored"

EARLY = {TWO: (2, r"ways\.py:\d+: RuntimeError: Collective ops must be configured at program startup; make the Multi")}
APART = {TWO: (2, r"ways\.py:\d+: 2 workers train 2 models: the model that is trained does not belong to a")}


def of_loop(what: str) -> dict[str, tuple[int, str]]:
    """A loop of the script's own refuses what each replica would have of its own."""
    return dict.fromkeys((TWO, MIRRORED), (2, rf"strategy\.run: {what} \(.*\) was made outside the scope of the"))


METRIC = {TWO: of_loop("a metric or a layer with state")[TWO]}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One row.

    Attributes:
        what: it is, for the page.
        like: the part whose numbers in plain Keras it has.
        ways: in which it is made.
        ends: way -> replicas -> (exit code, pattern that the line begins with), where it does not have these numbers.
    """

    what: str
    like: str = ""
    ways: tuple[str, ...]
    ends: Mapping[str, Mapping[str, tuple[int, str]]] = field(default_factory=dict)


MADE = (IN_SCOPE, BEFORE, OUTSIDE)
MODELS = (IN_SCOPE, BEFORE, OUTSIDE, CONFIG, CLONE, LOAD, LOAD_OUTSIDE)
NOT_WITHIN = {MIRRORED: (2, r"fit: the model .* was made outside the scope of the MirroredStrategy, and its optimizer")}
MODEL = {BEFORE: {**EARLY, **NOT_WITHIN}, OUTSIDE: {**APART, **NOT_WITHIN}, LOAD_OUTSIDE: APART}
PARTS = {
    "model": Part(what="the model", ways=MODELS, ends=MODEL),
    "step": Part(what="a model with a `train_step`", ways=MODELS, ends=MODEL),
    "normalization": Part(what="BatchNormalization", ways=(*MADE, CONFIG, LOAD)),
    "layer": Part(what="a layer with a metric", ways=(*MADE, CONFIG, LOAD), ends={BEFORE: EARLY}),
    "compile": Part(what="`compile`", like="model", ways=(IN_SCOPE, OUTSIDE)),
    "optimizer": Part(what="the optimizer", like="model", ways=(*MADE, BY_NAME, CONFIG), ends={BEFORE: EARLY}),
    "schedule": Part(what="a schedule of the learning rate", ways=(*MADE, CONFIG, LOAD)),
    "loss": Part(what="the loss", like="model", ways=(*MADE, BY_NAME, CONFIG)),
    "metrics": Part(what="metrics", ways=(*MADE, BY_NAME, CONFIG), ends={BEFORE: EARLY}),
    "number": Part(what="a metric that gives one number for a batch", ways=MADE, ends={BEFORE: EARLY}),
    "callbacks": Part(what="callbacks that read metrics", like="model", ways=MADE),
    "loop model": Part(
        what="own loop: the model", ways=MODELS[:-1],
        ends={BEFORE: {**of_loop("a weight of the model"), **EARLY}, OUTSIDE: of_loop("a weight of the model")},
    ),
    "loop optimizer": Part(
        what="own loop: the optimizer", like="loop model", ways=MADE,
        ends={BEFORE: {**of_loop("the optimizer Adam"), **EARLY}, OUTSIDE: of_loop("the optimizer Adam")},
    ),
    "loop accumulation": Part(what="own loop: an optimizer that accumulates gradients", ways=(IN_SCOPE,)),
    "loop loss": Part(what="own loop: the loss", like="loop model", ways=MADE),
    "loop metric": Part(
        what="own loop: a metric", like="loop model", ways=MADE, ends={BEFORE: EARLY, OUTSIDE: METRIC}
    ),
}  # fmt: skip
"""By its name in the script."""
CALLS = (
    "gradient_accumulation_steps", "steps_per_execution=3", "run_eagerly=True", "jit_compile=True",
    "auto_scale_loss=False", "class_weight", "sample_weight", "validation_split",
    "validation_data with weights, validation_steps", "arrays, shuffled", "batches of one example",
    "tf.data of one batch", "tf.data, repeated, steps_per_epoch", "drop_remainder", "auto_shard_policy DATA",
    "generators", "PyDataset", "experimental_distribute_dataset",
    "distribute_datasets_from_function", "fit twice, initial_epoch", "evaluate", "predict",
    "train_on_batch, test_on_batch, predict_on_batch",
)  # fmt: skip
CALL = "call"
STEPS = (
    "clip_by_global_norm", "clip_by_global_norm, eagerly", "clip_by_global_norm of an Embedding",
    "scale_loss, clip_by_global_norm", "gradients normalized",
    "weights added to gradients", "gradients in tf.cond and a tf.function", "gradients accumulated by hand",
    "gradients of several losses and of gradients", "two optimizers", "an optimizer that clips",
)  # fmt: skip
MORE = r"fit with 2 replicas: {}\.train_step gives the optimizer SGD what is not made of tape\.gradient, weights and"
REFUSED_STEPS = {
    "noise in the gradients": "Changing",
    "gradients times what the examples give": "Changing",
    "gradients without a tape": "OwnGradients",
}
STEP = "own step"
"""A `train_step` that changes its gradients."""

SERVED = {
    "tf_keras": None,
    "Keras 3": (2, "fit, evaluate and predict of Keras 3 do not run under ParameterServer; set "),
}
"""Whose `fit` is tried under ParameterServer: what it has to end with, or None. The script is in
`test_keras_override.py`."""


def cells() -> Iterator[str]:
    """All of them, in the order of the page."""
    yield from (f"{name}:{way}" for name, part in PARTS.items() for way in part.ways)
    yield from (f"{CALL}:{call}" for call in CALLS)
    yield from (f"{STEP}:{step}" for step in (*STEPS, *REFUSED_STEPS))


def reference(cell: str) -> str:
    """The cell that has the same numbers in plain Keras."""
    name, _, way = cell.partition(":")
    if name in (CALL, STEP):
        return cell
    if way.startswith(LOAD) or (name, way) == ("metrics", BY_NAME):
        return f"{name}:{way.partition(',')[0]}"
    return f"{PARTS[name].like or name}:{IN_SCOPE}"


def end(cell: str, replicas: str) -> tuple[int, str] | None:
    """What it has to end with; None where it has the numbers of plain Keras."""
    name, _, way = cell.partition(":")
    if way in REFUSED_STEPS:
        return 2, MORE.format(REFUSED_STEPS[way])
    return PARTS[name].ends.get(way, {}).get(replicas) if name in PARTS else None
