"""The table of `parity.py`: which models train as plain Keras `fit` on one device would, and where each is tried.

To add a case, add a line to CASES, and its model to the table in `parity_models.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BATCH = 24
EPOCHS = 3
SEED = 0

ONE, MIRRORED, PIPELINE = "OneDevice", "Mirrored", "Pipeline"
TWO_WORKERS, THREE_WORKERS = "MultiWorkerMirrored-2", "MultiWorkerMirrored-3"
ONE_SERVER = "ParameterServer"
"""One worker and one parameter server: only then is the order of the updates that of one device."""
LOCAL = (f"{ONE}-custom", f"{ONE}-resumed", f"{MIRRORED}-custom")
WORKERS = (f"{TWO_WORKERS}-custom",)
THREE = (f"{THREE_WORKERS}-custom",)
PIPED = (f"{PIPELINE}-custom",)
SESSIONS = (f"{ONE}-session", f"{MIRRORED}-session", f"{TWO_WORKERS}-session")
SERVED = (f"{ONE_SERVER}-custom",)
SEVERAL = (MIRRORED, "MultiWorkerMirrored")
ALL = (*LOCAL, *WORKERS)
ENDED = (f"{ONE}-custom", f"{MIRRORED}-custom", *WORKERS, *PIPED)
CHEAP = (f"{ONE}-custom", f"{ONE}-resumed", f"{MIRRORED}-custom", *PIPED)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the table.

    Attributes:
        name: of the case, and of its model in `parity_models.py`.
        model: where its name is another one.
        data: the name of its data there.
        arguments: of the trainer, next to those of all cases.
        reference: the model for plain Keras, where it is another one.
        cells: where it is run.
        tolerance: largest absolute difference of any weight.
        refused: cell, or the beginning of its name -> pattern that the line of the refusal begins with.
        code: that it ends with then.
    """

    name: str
    model: str = ""
    data: str = "points"
    arguments: tuple[str, ...] = ()
    reference: str | None = None
    batch: int = BATCH
    cells: tuple[str, ...] = ALL
    tolerance: float = 1e-6
    refused: Mapping[str, str] = field(default_factory=dict)
    code: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", self.model or self.name)

    def refusal(self, cell: str) -> str | None:
        """The pattern of the line that this cell is refused with; None where it has to be equal."""
        return next((line for start, line in self.refused.items() if cell.startswith(start)), None)


NO_PIPELINE = {PIPELINE: "--model=.*: strategy Pipeline takes the mean of one loss"}
NO_AXIS = {
    PIPELINE: r"--model=.*: strategy Pipeline .* where the output has shape \[batch\]; return an output of shape"
}
NO_SERVERS = {ONE_SERVER: "--model=.*: strategy ParameterServer takes the mean of one loss"}
NO_SCALE = {ONE_SERVER: r"--model=.*raised ValueError: .* Strategy, e\.g\. a MirroredStrategy"}
"""tf_keras cannot scale a loss under ParameterServer."""
OF_TF_KERAS = ".*: .* of tf_keras, but strategy .* needs one of Keras 3; make it with `import keras`, or use strategy P"
KERAS_OPTIMIZERS = (
    "adadelta", "adafactor", "adagrad", "adamax", "ftrl", "lamb", "lion", "muon", "nadam", "rmsprop",
    "schedulefreeadamw",
)  # fmt: skip
NAN = dict.fromkeys((ONE, MIRRORED), "the loss is not finite at step 3;") | {
    "MultiWorkerMirrored": "the loss is not finite at step 3 on worker 1;",
    PIPELINE: r"the loss is not finite at step 3 on worker 0 \(stage 0\);",
}
CASES: tuple[Case, ...] = (
    Case(name="adam", cells=(*ALL, *THREE, *PIPED, *SESSIONS)),
    Case(name="adam_uneven", model="adam", batch=25),
    Case(
        name="momentum",
        cells=(*ALL, *SERVED),
        refused={ONE_SERVER: "--model=.*: a model of Keras 3, but this strategy needs one of tf_keras"},
    ),
    Case(name="penalties", cells=(*ALL, *PIPED, *SESSIONS)),
    Case(name="schedule", cells=(*ALL, *SESSIONS)),
    Case(
        name="tf_keras_adam",
        cells=(f"{ONE}-custom", f"{MIRRORED}-custom", *WORKERS, *PIPED, *SERVED, *SESSIONS),
        refused=dict.fromkeys((ONE, *SEVERAL, PIPELINE), OF_TF_KERAS),
    ),
    Case(name="tf_keras_branches", cells=SERVED),
    Case(name="positions", data="tokens", cells=(*ALL, *PIPED), tolerance=5e-6),
    Case(name="masked", data="tokens", cells=(*ALL, *THREE, *PIPED), refused=NO_PIPELINE),
    Case(name="masked_by_weight", data="tokens", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="masked_sum", data="tokens", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="ignore_class", data="ignored", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="summed", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="loss_weights", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="sample_weights", model="plain", data="weighted", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="mean_by_weight", data="weighted"),
    Case(name="weights_not_reduced"),
    Case(name="multi_label", data="multi_label_points", cells=(*ALL, *PIPED)),
    Case(name="own_loss", cells=(*ALL, *PIPED)),
    Case(name="one_number"),
    Case(name="one_number_uneven", model="one_number", batch=25),
    Case(name="one_sum"),
    Case(name="single_numbers", data="single_values", batch=25),
    Case(name="single_numbers_compared", data="single_values", cells=(*ALL, *PIPED), refused=NO_AXIS),
    Case(name="dice_of_each", data="one_hot_points"),
    Case(name="dice_of_the_batch", data="one_hot_points", batch=25),
    Case(name="circle", batch=25),
    Case(name="bfloat16_outputs", tolerance=2e-3),
    Case(name="float64_outputs"),
    Case(name="mixed_weights"),
    Case(name="subclassed"),
    Case(name="without_input"),
    Case(name="tf_keras_without_input", cells=SERVED),
    Case(name="metrics"),
    Case(name="area_under_curve", data="yes_or_no"),
    Case(name="ragged", data="ragged_tokens", cells=(*ALL, *THREE, *PIPED)),
    Case(name="ragged_uneven", model="ragged", data="ragged_tokens", batch=25),
    Case(name="tf_keras_ragged", data="ragged_tokens", cells=SERVED),
    Case(name="several", data="pairs", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    *(Case(name=f"compute_loss{kind}") for kind in ("", "_alone", "_summed")),
    Case(name="compute_loss_masked", data="tokens"),
    Case(name="compute_loss_of_pairs", batch=25),
    Case(name="compute_loss_that_leaves_out"),
    Case(name="train_step", refused={"": "--model=.*: OwnStep has a train_step of its own"}),
    Case(name="added_loss_alone"),
    Case(name="activities", cells=(*ALL, *PIPED)),
    Case(name="activities_uneven", model="activities", batch=25),
    Case(name="activities_summed", batch=25),
    Case(name="bare_variable", refused={"": "--model=.*: levels.level is a tf.Variable that the model sets"}),
    Case(name="metric_of_maxima", batch=25),
    Case(name="metric_of_the_last", refused={"": "--model=.*: the metric newest does not add up"}),
    Case(name="tf_keras_masked", data="tokens", cells=SERVED, refused=NO_SERVERS),
    Case(name="tf_keras_weights", data="weighted", cells=SERVED, refused=NO_SERVERS),
    Case(name="normalised_penalties"),
    Case(name="normalised_nested"),
    Case(name="normalised_raw", data="raw_points", tolerance=2e-3),
    Case(name="normalised_masked", data="tokens"),
    Case(name="bias_without_gradient", tolerance=5e-6),
    Case(name="own_state", refused=dict.fromkeys(SEVERAL, "--model=.*/mean depends on the ex")),
    Case(name="counting"),
    Case(name="unseeded"),
    Case(name="stateful", data="series", refused={"": "--model=.*: the model takes batches of 24 and no others"}),
    Case(name="mixed_float16", cells=(*ALL, *PIPED), tolerance=2e-3),
    Case(name="mixed_float16_schedule", tolerance=2e-3),
    Case(name="mixed_float16_overflow", cells=(*ALL, *PIPED), tolerance=2e-3),
    Case(name="mixed_bfloat16", cells=(*ALL, *PIPED), tolerance=2e-2),
    Case(name="loss_scale_by_hand", cells=(*ALL, *PIPED)),
    Case(
        name="loss_scale_that_grows",
        code=1,
        refused=dict.fromkeys(ALL, "the weights are finite, but the optimizer's state is not finite by step"),
    ),
    Case(name="loss_scale_factor", cells=(*ALL, *PIPED)),
    Case(name="tf_keras_mixed_float16", tolerance=2e-3, cells=SERVED, refused=NO_SCALE),
    Case(name="tf_keras_loss_scale_by_hand", cells=SERVED, refused=NO_SCALE),
    Case(name="clipnorm", cells=(*ALL, *THREE, *PIPED, *SESSIONS)),
    Case(name="clipvalue", cells=(*ALL, *PIPED)),
    Case(
        name="global_clipnorm",
        cells=(*ALL, *THREE, *PIPED, *SESSIONS),
        refused={PIPELINE: "strategy Pipeline: the model was compiled with global_clipnorm=0.1"},
    ),
    Case(name="tf_keras_global_clipnorm", cells=SERVED),
    Case(name="rate_as_a_function", cells=(*ALL, *PIPED)),
    Case(
        name="shuffled_by_itself",
        model="momentum",
        data="shuffled",
        refused={"": "--data=.*: the held_out examples change from one"},
    ),
    Case(name="nan_loss", model="momentum", data="spoiled", cells=ENDED, code=1, refused=NAN),
    Case(name="average", cells=(*ALL, *PIPED)),
    Case(name="average_that_overwrites", cells=(*ALL, *PIPED)),
    Case(name="tf_keras_average", cells=SERVED),
    *(Case(name=f"keras_{name}", cells=CHEAP) for name in KERAS_OPTIMIZERS),
    Case(
        name="named",
        model="momentum",  # what the command line names takes the place of its optimizer
        reference="weight_decay_everywhere",
        arguments=("--optimizer=adamw", "--learning-rate=0.05", "--optimizer-options=weight_decay=0.5,epsilon=1e-5"),
        cells=CHEAP,
    ),
    Case(
        name="several_optimizers",
        cells=(f"{ONE}-custom",),
        refused={"": "the model was compiled with a MultiOptimizer; compile it with one optimizer"},
    ),
    Case(
        name="made_outside",
        reference="momentum",
        cells=(f"{MIRRORED}-custom", *WORKERS),
        refused={"": "the model was compiled with a SGD that was made outside of the function that builds the model"},
    ),
    Case(
        name="legacy_optimizer",
        cells=SERVED,
        refused={"": "the model was compiled with tf_keras.src.optimizers.legacy.gradient_descent.SGD;"},
    ),
    Case(name="accumulation", cells=(*ALL, *THREE, *PIPED, *SESSIONS)),
    Case(
        name="accumulation_with_all",
        cells=(*ALL, *PIPED),
        refused={PIPELINE: "strategy Pipeline: the model was compiled with global_clipnorm=0.05"},
    ),
    Case(name="constraint", cells=(*ALL, *PIPED)),
    Case(name="weight_decay", cells=(*ALL, *PIPED)),
)
BY_NAME = {case.name: case for case in CASES}
