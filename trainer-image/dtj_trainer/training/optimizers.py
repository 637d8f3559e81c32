"""The optimizer of a run, of either Keras, with its rate as a function of the step alone.

The rate is a schedule, also where it is constant: so it is computed from the optimizer's own count of updates,
which every checkpoint restores, and is itself never state. What the command line says holds from the next step on,
whatever rate a checkpoint was written at. (tf_keras counts exactly also under parameter servers, Keras 3 does not.)
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.compat import optimizers as compat
from dtj_trainer.config.optimizer import WARMED_UP, Learning
from dtj_trainer.errors import UsageError
from dtj_trainer.training import weight_update

_OPTIONS = "--optimizer-options"
DECAY_TO = 0.01
"""The share of the rate that schedule exponential ends at."""


@dataclass(frozen=True, kw_only=True)
class BuiltOptimizer:
    """An optimizer, and how it is shown: `adam  learning rate 0.003`."""

    optimizer: Any
    name: str
    """How the optimizer and its rate are shown."""
    schedule: str = ""
    """How the schedule is shown."""
    schedule_over: Callable[[int], tuple[Any, str]] | None = None
    """Steps of the run -> a schedule over them, and how it is shown; None: it is no function of them."""

    @property
    def description(self) -> str:
        """How the optimizer is shown."""
        return self.name + self.schedule

    def over(self, total_steps: int) -> "BuiltOptimizer":
        """The same optimizer with its schedule over another number of steps; before its first step is traced."""
        if self.schedule_over is None:
            return self
        schedule, shown = self.schedule_over(total_steps)
        # In place: copies of the optimizer share it.
        vars(compat.rate_of(weight_update.inner(self.optimizer))).update(vars(schedule))
        return replace(self, schedule=shown)


def make(model: Any, learning: Learning, *, total_steps: int) -> BuiltOptimizer:
    """The optimizer that the command line asks for, else the one that the model was compiled with; not built yet.

    To be called under the strategy. It is of the Keras that made the model.

    Args:
        total_steps: of the run.

    Raises:
        UsageError: the optimizer, or an option of it, cannot be used.
    """
    keras = two_kerases.keras_of(model)
    made = _make(keras, model, learning, total_steps=total_steps)
    given = f"--optimizer={learning.optimizer}" if learning.asked else "the optimizer that the model was compiled with"
    two_kerases.check_counted(made.optimizer, given)
    compiled = getattr(model, "optimizer", None)
    # `compile` has scaled its optimizer by itself, unless it was told not to, with auto_scale_loss=False.
    scales = two_kerases.scales_loss(model) and (compiled is None or weight_update.scales(compiled))
    if not scales or weight_update.scales(made.optimizer):
        return made
    try:
        return replace(made, optimizer=keras.mixed_precision.LossScaleOptimizer(made.optimizer))
    except ValueError as error:
        # tf_keras has none for parameter servers.
        raise UsageError(f"mixed_float16: {str(error).splitlines()[0][:200]}; use mixed_bfloat16") from None


def _make(keras: ModuleType, model: Any, learning: Learning, *, total_steps: int) -> BuiltOptimizer:
    if not learning.asked and getattr(model, "optimizer", None) is not None:
        return _compiled(keras, model.optimizer)
    kind, settings = _kind(keras, learning)
    rate = learning.rate or inspect.signature(kind).parameters["learning_rate"].default
    name = ", ".join([learning.optimizer, *(f"{name.replace('_', ' ')} {settings[name]:g}" for name in settings)])
    if learning.schedule == "constant":
        made, schedule, shown = None, _constant(keras, rate), ""
    else:
        made = partial(_schedule, keras, learning, rate)
        schedule, shown = made(total_steps)
    try:
        return BuiltOptimizer(
            optimizer=kind(schedule, **settings),
            name=f"{name}  learning rate {rate:g}",
            schedule=shown,
            schedule_over=made,
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{_OPTIONS}: {str(error).splitlines()[0][:200]}") from None


def _schedule(keras: ModuleType, learning: Learning, rate: float, decay: int) -> tuple[Any, str]:
    """The schedule of a rate over this many steps, and how it is shown."""
    schedules = keras.optimizers.schedules
    # Of one step, nothing can warm up.
    warmup = max(1, decay // 10) if learning.schedule == WARMED_UP and decay > 1 else 0
    if learning.schedule == "exponential":
        schedule = schedules.ExponentialDecay(rate, decay_steps=decay, decay_rate=DECAY_TO)
        return schedule, f" falling exponentially to {rate * DECAY_TO:g} over {decay} steps"
    if warmup:
        schedule = schedules.CosineDecay(0.0, decay - warmup, warmup_target=rate, warmup_steps=warmup)
        return schedule, f" after a warm-up of {warmup} steps, then falling by a cosine to 0 at step {decay}"
    return schedules.CosineDecay(rate, decay), f" falling by a cosine to 0 over {decay} steps"


def _kind(keras: ModuleType, learning: Learning) -> tuple[Any, dict[str, Any]]:
    """The class of the optimizer, and its arguments next to the rate.

    Raises:
        UsageError: this Keras has no such optimizer, or the optimizer no such option.
    """
    kinds = {name.lower(): kind for name, kind in vars(keras.optimizers).items() if inspect.isclass(kind)}
    kind = kinds.get(learning.optimizer)
    if kind is None:
        raise UsageError(
            f"--optimizer={learning.optimizer}: {keras.__name__} {keras.__version__} has no such optimizer; choose "
            "another, or build the model with Keras 3"
        )
    known = [name for name in inspect.signature(kind).parameters if name not in ("learning_rate", "name", "kwargs")]
    if unknown := [name for name in learning.settings if name not in known]:
        raise UsageError(
            f"{_OPTIONS}: {learning.optimizer} has no option {unknown[0]}; it has {', '.join(known)}"
            if unknown[0] != "learning_rate"
            else f"{_OPTIONS}: give learning_rate as --learning-rate"
        )
    return kind, dict(learning.settings)


def _constant(keras: ModuleType, rate: float) -> Any:
    """What Keras has of a constant is a variable, and so would be state. 1 to any power is 1, to the bit."""
    return keras.optimizers.schedules.ExponentialDecay(rate, decay_steps=1, decay_rate=1.0)


def _compiled(keras: ModuleType, optimizer: Any) -> BuiltOptimizer:
    """The optimizer of a user's, as it is."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise UsageError(
            f"the model was compiled with {type(optimizer).__module__}.{type(optimizer).__name__}; compile it with one "
            f"of {keras.__name__}.optimizers"
        )
    one = weight_update.inner(optimizer)
    if hasattr(one, "optimizers"):
        raise UsageError(f"the model was compiled with a {type(one).__name__}; compile it with one optimizer")
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1 and compat.made_under(one) is not strategy:
        raise UsageError(
            f"the model was compiled with a {type(one).__name__} that was made outside of the function that builds the "
            "model; make it inside, so that all replicas share it"
        )
    description = f"{type(one).__name__.lower()} as the model was compiled"
    given = compat.rate_of(one)
    if isinstance(given, keras.optimizers.schedules.LearningRateSchedule):
        return BuiltOptimizer(optimizer=optimizer, name=f"{description}  learning rate by its own schedule")
    if not hasattr(given, "assign"):
        return BuiltOptimizer(optimizer=optimizer, name=f"{description}  learning rate by its own function")
    (rate,) = (variable.numpy().item() for variable in two_kerases.variables([given]))
    if keras.__name__ == "keras":
        # tf_keras keeps its variable of the rate apart from the state.
        one.learning_rate = _constant(keras, rate)
    return BuiltOptimizer(optimizer=optimizer, name=f"{description}  learning rate {rate:g}")
