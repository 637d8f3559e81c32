"""The learning rate is a function of the step alone, in both Kerases, and no part of a checkpoint."""

import math
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dtj_trainer.config.optimizer import Learning
from dtj_trainer.config.options import read
from dtj_trainer.errors import UsageError

STEPS = 200
RATE = 0.1
EXPECTED = {
    "constant": lambda step: RATE,
    "cosine": lambda step: RATE * (1 + math.cos(math.pi * min(step, STEPS) / STEPS)) / 2,
    "exponential": lambda step: RATE * 0.01 ** (step / STEPS),
    "warmup-cosine": lambda step: (
        RATE * step / 20 if step < 20 else RATE * (1 + math.cos(math.pi * min(step - 20, 180) / 180)) / 2
    ),
}


@pytest.fixture(params=["keras", "tf_keras"])
def library(request: pytest.FixtureRequest) -> ModuleType:
    """Each of the two Kerases."""
    return pytest.importorskip(request.param)


def asked(*argv: str) -> Learning:
    """What a command line asks for."""
    return Learning(**read(argv, {}, [Learning]).values(Learning), rates={"adam": 0.001, "sgd": 0.01})


def model_of(library: ModuleType) -> Any:
    return library.Sequential([library.layers.Input((3,)), library.layers.Dense(1)])


def made(library: ModuleType, *argv: str) -> Any:
    from dtj_trainer.training import optimizers

    return optimizers.make(model_of(library), asked(*argv), total_steps=STEPS)


def rate(optimizer: Any, step: int) -> float:
    """What the optimizer would learn with in the step after this many, as it was restored from a checkpoint."""
    optimizer.iterations.assign(step)
    schedule = optimizer._learning_rate
    return float(schedule(optimizer.iterations))


@pytest.mark.parametrize("schedule", EXPECTED)
def test_each_schedule_is_what_it_says(library: ModuleType, schedule: str) -> None:
    optimizer = made(library, f"--schedule={schedule}", f"--learning-rate={RATE}").optimizer
    for step in (0, 1, 19, 20, 21, 100, 150, STEPS - 1):
        assert rate(optimizer, step) == pytest.approx(EXPECTED[schedule](step), rel=1e-5, abs=1e-9), step


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_what_is_saved_is_the_same_for_all_schedules_and_holds_no_rate(library: ModuleType, optimizer: str) -> None:
    from dtj_trainer import two_kerases
    from dtj_trainer.training import optimizers

    saved = set()
    for schedule in EXPECTED:
        model = model_of(library)
        argv = [f"--optimizer={optimizer}", f"--schedule={schedule}"]
        built = optimizers.make(model, asked(*argv), total_steps=STEPS).optimizer
        built.build(model.trainable_variables)
        state = two_kerases.variables(built.variables)
        assert not [variable for variable in state if variable.shape == () and variable.dtype.is_floating]
        saved.add(tuple(tuple(variable.shape) for variable in state))
    assert len(saved) == 1


def test_the_momentum_of_sgd_and_the_schedule_are_reported(library: ModuleType) -> None:
    with_momentum = made(library, "--optimizer=sgd", "--optimizer-options=momentum=0.9", "--schedule=warmup-cosine")
    assert with_momentum.optimizer.momentum == 0.9
    assert with_momentum.description == (
        "sgd, momentum 0.9  learning rate 0.01 after a warm-up of 20 steps, then falling by a cosine to 0 at step 200"
    )


def test_a_run_of_one_step_warms_up_in_none(library: ModuleType) -> None:
    from dtj_trainer.training import optimizers

    made = optimizers.make(model_of(library), asked("--schedule=warmup-cosine", "--learning-rate=0.5"), total_steps=1)
    assert rate(made.optimizer, 0) == pytest.approx(0.5)


def test_a_compiled_model_keeps_its_optimizer_until_the_command_line_asks_for_another(library: ModuleType) -> None:
    from dtj_trainer.training import optimizers

    model = model_of(library)
    model.compile(optimizer=library.optimizers.SGD(0.25), loss="mse")
    kept = optimizers.make(model, asked(), total_steps=STEPS)
    assert kept.optimizer is model.optimizer
    assert kept.description == "sgd as the model was compiled  learning rate 0.25"
    assert float(kept.optimizer.learning_rate) == 0.25
    other = optimizers.make(model, asked("--learning-rate=0.5"), total_steps=STEPS)
    assert other.description == "adam  learning rate 0.5"


@pytest.mark.parametrize("scales", [True, False])
@pytest.mark.parametrize("loss", [None, "mean_squared_error"])
def test_a_compiled_model_scales_its_loss_only_if_it_was_compiled_so(scales: bool, loss: str | None) -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.config.entry_points import Name
    from dtj_trainer.training import optimizers
    from dtj_trainer.training.model import ModelFactory

    def build() -> Any:
        model = model_of(keras)
        model.dtype_policy = keras.DTypePolicy("mixed_float16")
        model.compile("sgd", "mse", auto_scale_loss=scales)
        return model

    examples = tf.data.Dataset.from_tensors((tf.zeros((2, 3)), tf.zeros((2, 1))))
    data: Any = SimpleNamespace(name="points", input_spec=examples.element_spec[0], validation=lambda batch: examples)
    factory = ModelFactory(Name(flag="--model", module="mine", function="build"), build, data, loss=loss)
    for argv in ([], ["--learning-rate=0.5"]):
        made = optimizers.make(factory.build(data), asked(*argv), total_steps=STEPS)
        assert isinstance(made.optimizer, keras.optimizers.LossScaleOptimizer) == scales


def test_any_optimizer_is_made_by_name_with_its_options(library: ModuleType) -> None:
    argv = ["--optimizer=adamw", "--learning-rate=0.02", "--optimizer-options=weight_decay=0.01,use_ema=true"]
    named = made(library, *argv)
    assert isinstance(named.optimizer, library.optimizers.AdamW)
    assert (named.optimizer.weight_decay, named.optimizer.use_ema) == (0.01, True)
    assert named.description == "adamw, weight decay 0.01, use ema 1  learning rate 0.02"
    assert rate(made(library, "--optimizer=rmsprop").optimizer, 0) == pytest.approx(0.001), "Keras' own"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (
            ["--optimizer=lion", "--optimizer-options=speed=3"],
            "--optimizer-options: lion has no option speed; it has b",
        ),
        (
            ["--optimizer=adam", "--optimizer-options=learning_rate=3"],
            "--optimizer-options: give learning_rate as --le",
        ),
        (
            ["--optimizer=sgd", "--optimizer-options=momentum=1.5"],
            "--optimizer-options: `momentum` must be a float between [0, 1]",
        ),
        (
            ["--optimizer-options=clipnorm=1,clipvalue=1"],
            "--optimizer-options: Only one of `clipnorm`, `clipvalue` and",
        ),
    ],
)
def test_an_option_that_the_optimizer_does_not_have_is_one_line(argv: list[str], line: str) -> None:
    import keras

    with pytest.raises(UsageError) as refusal:
        made(keras, *argv)
    assert str(refusal.value).startswith(line)
    assert "\n" not in str(refusal.value)


def test_tf_keras_lacks_some() -> None:
    tf_keras = pytest.importorskip("tf_keras")
    with pytest.raises(UsageError, match=r"^--optimizer=lamb: tf_keras [0-9.]+ has no such optimizer; choose another"):
        made(tf_keras, "--optimizer=lamb")


def test_nadam_of_tf_keras_is_refused_as_it_counts_its_traces() -> None:
    tf_keras = pytest.importorskip("tf_keras")
    from dtj_trainer.training import optimizers

    line = ": the Nadam of tf_keras counts how often TensorFlow traces it in place of its updates; use Adam"
    with pytest.raises(UsageError, match=f"^--optimizer=nadam{line}"):
        made(tf_keras, "--optimizer=nadam")
    model = model_of(tf_keras)
    model.compile(tf_keras.optimizers.Nadam(), "mse")
    with pytest.raises(UsageError, match=f"^the optimizer that the model was compiled with{line}"):
        optimizers.make(model, asked(), total_steps=STEPS)
