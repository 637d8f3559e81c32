"""The stages of a pipeline: each one's part of the model, its variables on its worker, its optimizer there.

The layers are the model's, called without their own variables (`keras.Layer.stateless_call`), so that each call says
which weights it takes, which state it finds and which it leaves. Imports TensorFlow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.compat import optimizers
from dtj_trainer.config.pipeline_layout import PIPELINE
from dtj_trainer.errors import UsageError
from dtj_trainer.pipeline_parallel.graph_cut import Part
from dtj_trainer.training import weight_update

Tensor = Any


@dataclass(frozen=True, kw_only=True)
class StageOutput:
    """What a stage makes of one micro-batch."""

    outputs: Tensor
    state: list[Tensor]
    """The values of `Stage.state` after this."""
    penalty: Tensor
    """What the layers want added to the loss, such as the decay of weights; a scalar."""


class Stage:
    """One stage. Its variables are on its worker."""

    def __init__(
        self,
        part: Part,
        weights: Sequence[tuple[int, Any]],
        device: str,
        optimizer: Any,
        decays: Callable[[Any], bool] = lambda weight: True,
    ) -> None:
        """Args:
        weights: all of the model's, each with its index among them; the stage takes those of its part.
        device: where its variables are.
        decays: whether the decay of weights, if the optimizer has any, is for this weight of the model.
        """
        self._model = part.model()
        self.device = device
        self.optimizer = optimizer
        own = {id(weight) for weight in self._model.weights}
        with tf.device(device):
            # The name has to tell it from all others: the optimizer names its slots after it.
            self.placed = {
                index: keras.Variable(
                    weight.numpy(), dtype=weight.dtype, trainable=weight.trainable, name=f"weight_{index}"
                )
                for index, weight in weights
                if id(weight) in own
            }
            for index, weight in weights:
                if index in self.placed:
                    self.placed[index].constraint = weight.constraint
            if spared := [
                self.placed[index] for index, weight in weights if index in self.placed and not decays(weight)
            ]:
                weight_update.inner(optimizer).exclude_from_weight_decay(var_list=spared)
            by_weight = {id(weight): self.placed[index] for index, weight in weights if index in self.placed}
            self.trainable = [by_weight[id(weight)] for weight in self._model.trainable_variables]
            self.state = [by_weight[id(weight)] for weight in self._model.non_trainable_weights]
            optimizer.build(self.trainable)
        # What is no weight: where the layers' random numbers stand, as `[seed, count]`.
        self._others = [v.numpy() for v in self._model.non_trainable_variables if id(v) not in own]
        self._is_weight = [id(v) in own for v in self._model.non_trainable_variables]

    def call(self, weights: Sequence[Tensor], state: Sequence[Tensor], inputs: Tensor, *, draw: Tensor) -> StageOutput:
        """Runs the part forward in training.

        Args:
            weights: values of `trainable`.
            state: values of `state`, such as the moving statistics of BatchNormalization.
            draw: int64; random numbers, as of Dropout, are a function of the seed and of this.

        """
        states, others = iter(state), iter(self._others)
        found = [next(states) if is_weight else _reseed(next(others), draw) for is_weight in self._is_weight]
        outputs, left, penalties = self._model.stateless_call(weights, found, inputs, training=True, return_losses=True)
        return StageOutput(
            outputs=outputs,
            state=[value for value, is_weight in zip(left, self._is_weight, strict=True) if is_weight],
            penalty=tf.add_n([tf.cast(one, tf.float32) for one in penalties]) if penalties else tf.constant(0.0),
        )

    @property
    def scales_loss(self) -> bool:
        """Whether its optimizer scales the loss, and so has to know whether any stage's gradients overflowed."""
        return bool(self.trainable) and weight_update.scales(self.optimizer)

    def learn(self, gradients: Sequence[Tensor], *, finite: Tensor | None = None) -> None:
        """One step of the optimizer, on the device of the stage.

        Args:
            finite: whether the gradients of all stages are, where the loss is scaled.
        """
        with tf.device(self.device):
            if self.scales_loss:
                self.optimizer.check_finite = lambda grads: finite
            if self.trainable:
                self.optimizer.apply(gradients, self.trainable)

    def finalize(self) -> None:
        """What the optimizer does once, after the last step."""
        if self.trainable:
            self.optimizer.finalize_variable_values(self.trainable)


def _reseed(seed: Any, draw: Tensor) -> Tensor:
    # Anything else that is no weight (a metric within the model) stays as it was built.
    return tf.random.experimental.stateless_fold_in(seed, draw) if seed.shape == (2,) else tf.constant(seed)


def copies_of(optimizer: Any) -> Callable[[], Any]:
    """What makes the optimizers of the stages: each like this one, which is not built yet.

    Raises:
        UsageError: it has to see the gradients of all stages at once.
    """
    inner = weight_update.inner(optimizer)
    if inner.global_clipnorm is not None:
        raise UsageError(
            f"strategy {PIPELINE}: the model was compiled with global_clipnorm={inner.global_clipnorm:g}, but no "
            "worker has the gradients of all stages; use clipnorm or clipvalue"
        )

    def make() -> Any:
        config = inner.get_config()
        # A function of the user's cannot be made again out of a configuration.
        config["learning_rate"] = optimizers.rate_of(inner)
        one = type(inner).from_config(config)
        if inner is optimizer:
            return one
        return type(optimizer)(
            one, initial_scale=optimizer.initial_scale, dynamic_growth_steps=optimizer.dynamic_growth_steps
        )

    return make


def decays_of(optimizer: Any) -> Callable[[Any], bool]:
    """Which weights of the model the optimizer lets decay: see `exclude_from_weight_decay`."""
    inner = weight_update.inner(optimizer)
    return lambda weight: optimizers.lets_decay(inner, weight.value)


def make_stages(
    model: Any,
    parts: Sequence[Part],
    devices: Sequence[str],
    make_optimizer: Callable[[], Any],
    decays: Callable[[Any], bool] = lambda weight: True,
) -> tuple[Stage, ...]:
    """The stages with the model's present weights. Its own variables are not used in training."""
    weights = list(enumerate(model.weights))
    return tuple(
        Stage(part, weights, device, make_optimizer(), decays) for part, device in zip(parts, devices, strict=True)
    )


def weights_of(stages: Sequence[Stage]) -> list[Any]:
    """The variables of all stages in the model's order."""
    placed = {index: variable for stage in stages for index, variable in stage.placed.items()}
    return [placed[index] for index in sorted(placed)]


def state_of(
    stages: Sequence[Stage], model: Any, make_optimizer: Callable[[], Any]
) -> tuple[dict[str, list[str]], dict[str, list[Any]]]:
    """Names and variables that a run must remember, as one optimizer over the whole model would have them.

    So any other strategy, and a pipeline of another number of stages, can go on with it. What each stage's optimizer
    has alike (its count of steps) is remembered once: see `share_counts`.
    """
    weights = weights_of(stages)
    whole = make_optimizer()
    whole.build([weight for weight in weights if weight.trainable])
    slots: dict[tuple[str, int], Any] = {}
    for stage in reversed(_learning(stages)):
        slots |= _by_name(stage.optimizer)
    kept = {id(variable) for variable in two_kerases.saved_variables(whole)}
    remembered = {name: variable for name, variable in _by_name(whole).items() if id(variable) in kept}
    names = variable_names.of_model(model, model.weights)
    of_optimizer = variable_names.of_optimizer(
        whole, two_kerases.variables(remembered.values()), zip(weights, names, strict=True)
    )
    return (
        {"weights": names, "optimizer": of_optimizer},
        {"weights": [weight.value for weight in weights], "optimizer": [slots[name].value for name in remembered]},
    )


def share_counts(stages: Sequence[Stage]) -> None:
    """After a restore: gives what was remembered once, as the count of steps, to the optimizers of all stages."""
    first, *others = _learning(stages)
    remembered = _by_name(first.optimizer)
    for stage in others:
        for name, variable in _by_name(stage.optimizer).items():
            if name in remembered:
                variable.assign(remembered[name].numpy())


def _by_name(optimizer: Any) -> dict[tuple[str, int], Any]:
    """The variables by their name and, as some have the same, by which of these it is."""
    found: dict[tuple[str, int], Any] = {}
    for variable in optimizer.variables:
        # One without a name has a number that goes up with all that Keras makes.
        name, count = "variable" if variable.name.startswith("variable_") else variable.name, 0
        while (name, count) in found:
            count += 1
        found[name, count] = variable
    return found


def _learning(stages: Sequence[Stage]) -> list[Stage]:
    """Those whose optimizers are used at all: a stage may have nothing to train, as one that only flattens."""
    return [stage for stage in stages if stage.trainable]
