"""The optimizer of a run, of either Keras, with its rate as a function of the step alone.

The rate is always a schedule, also where it is constant: so it is computed from the optimizer's own count of updates,
which every checkpoint restores, and is itself never state. What the command line says holds from the next step on,
whatever rate a checkpoint was written at. (tf_keras counts exactly also under parameter servers, Keras 3 does not.)
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dtj_trainer import kerases
from dtj_trainer.errors import UsageError
from dtj_trainer.learning import WARMED_UP, Learning

DECAY_TO = 0.01
"""The share of the rate that schedule exponential ends at."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An optimizer, and what a person is told of it: `adam  learning rate 0.003`."""

    optimizer: Any
    told: str


def make(model: Any, learning: Learning, *, batch: int, total_steps: int) -> Made:
    """The optimizer that the command line asks for, else the one that the model was compiled with; not built yet.

    To be called under the strategy. It is of the Keras that made the model.

    Args:
        batch: global batch size.
        total_steps: of the run.

    Raises:
        UsageError: a warm-up that is as long as the decay.
    """
    keras = kerases.of(model)
    if not learning.asked and getattr(model, "optimizer", None) is not None:
        return _compiled(keras, model.optimizer)
    rate, told = learning.rate, f"{learning.optimizer}  learning rate {learning.rate:g}"
    if learning.base_batch:
        rate *= batch / learning.base_batch
        told = (
            f"{learning.optimizer}  learning rate {rate:g} "
            f"({learning.rate:g} for {learning.base_batch} examples, scaled to {batch})"
        )
    decay = learning.decay_steps or total_steps
    warmup = _warmup(learning, decay) if learning.schedule == WARMED_UP else 0
    schedules = keras.optimizers.schedules
    if learning.schedule == "constant":
        schedule = _constant(keras, rate)
    elif learning.schedule == "exponential":
        schedule = schedules.ExponentialDecay(rate, decay_steps=decay, decay_rate=DECAY_TO)
        told += f" falling exponentially to {rate * DECAY_TO:g} over {decay} steps"
    elif warmup:
        schedule = schedules.CosineDecay(0.0, decay - warmup, warmup_target=rate, warmup_steps=warmup)
        told += f" after a warm-up of {warmup} steps, then falling by a cosine to 0 at step {decay}"
    else:
        schedule = schedules.CosineDecay(rate, decay)
        told += f" falling by a cosine to 0 over {decay} steps"
    if learning.optimizer == "adam":
        return Made(optimizer=keras.optimizers.Adam(schedule), told=told)
    told = told.replace("sgd", f"sgd, momentum {learning.momentum:g}", 1) if learning.momentum else told
    return Made(optimizer=keras.optimizers.SGD(schedule, momentum=learning.momentum), told=told)


def _constant(keras: ModuleType, rate: float) -> Any:
    """What Keras has of a constant is a variable, and so would be state. 1 to any power is 1, to the bit."""
    return keras.optimizers.schedules.ExponentialDecay(rate, decay_steps=1, decay_rate=1.0)


def _compiled(keras: ModuleType, optimizer: Any) -> Made:
    """The optimizer of a user's, as it is."""
    told = f"{type(optimizer).__name__.lower()} as the model was compiled"
    if isinstance(optimizer._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        return Made(optimizer=optimizer, told=f"{told}  learning rate by its own schedule")
    (rate,) = (variable.numpy().item() for variable in kerases.variables([optimizer.learning_rate]))
    if keras.__name__ == "keras":
        # tf_keras keeps its variable of the rate apart from the state.
        optimizer.learning_rate = _constant(keras, rate)
    return Made(optimizer=optimizer, told=f"{told}  learning rate {rate:g}")


def _warmup(learning: Learning, decay: int) -> int:
    warmup = max(1, decay // 10) if learning.warmup_steps is None else learning.warmup_steps
    if warmup >= decay:
        raise UsageError(
            f"--warmup-steps={warmup}: as long as the {decay} steps of the whole schedule; give less, or more "
            "--decay-steps or --epochs"
        )
    return warmup
