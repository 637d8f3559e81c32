"""The stages of a pipeline: each one's part of the model, its variables on its worker, its optimizer there.

The layers are the model's, called without their own variables (`keras.Layer.stateless_call`), so that each call says
which weights it takes, which state it finds and which it leaves. Imports TensorFlow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.checkpoints import State
from dtj_trainer.errors import UsageError
from dtj_trainer.gpipe.cutting import Part
from dtj_trainer.gpipe.layout import PIPELINE

Tensor = Any


@dataclass(frozen=True, kw_only=True)
class Called:
    """What a stage makes of one micro-batch."""

    outputs: Tensor
    state: list[Tensor]
    """The values of `Stage.state` after this."""
    penalty: Tensor
    """What the layers want added to the loss, such as the decay of weights; a scalar."""


class Stage:
    """One stage. Its variables are on its worker of the first replica; those of the other replicas read them there."""

    def __init__(self, part: Part, weights: Sequence[tuple[int, Any]], device: str, optimizer: Any) -> None:
        """Args:
        weights: all of the model's, each with its index among them; the stage takes those of its part.
        device: where its variables are.
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
            by_weight = {id(weight): self.placed[index] for index, weight in weights if index in self.placed}
            self.trainable = [by_weight[id(weight)] for weight in self._model.trainable_variables]
            self.state = [by_weight[id(weight)] for weight in self._model.non_trainable_weights]
            optimizer.build(self.trainable)
        # What is no weight: where the layers' random numbers stand, as `[seed, count]`.
        self._others = [v.numpy() for v in self._model.non_trainable_variables if id(v) not in own]
        self._is_weight = [id(v) in own for v in self._model.non_trainable_variables]

    def call(self, weights: Sequence[Tensor], state: Sequence[Tensor], inputs: Tensor, *, draw: Tensor) -> Called:
        """Runs the part forward in training.

        Args:
            weights: values of `trainable`.
            state: values of `state`, such as the moving statistics of BatchNormalization.
            draw: int64; random numbers, as of Dropout, are a function of the seed and of this.

        """
        states, others = iter(state), iter(self._others)
        found = [next(states) if is_weight else _redrawn(next(others), draw) for is_weight in self._is_weight]
        outputs, left, penalties = self._model.stateless_call(weights, found, inputs, training=True, return_losses=True)
        return Called(
            outputs=outputs,
            state=[value for value, is_weight in zip(left, self._is_weight, strict=True) if is_weight],
            penalty=tf.add_n(penalties) if penalties else tf.constant(0.0),
        )

    def learn(self, gradients: Sequence[Tensor]) -> None:
        """One step of the optimizer, on the device of the stage."""
        with tf.device(self.device):
            if self.trainable:
                self.optimizer.apply(gradients, self.trainable)


def _redrawn(seed: Any, draw: Tensor) -> Tensor:
    # Anything else that is no weight (a metric within the model) stays as it was built.
    return tf.random.experimental.stateless_fold_in(seed, draw) if seed.shape == (2,) else tf.constant(seed)


def copies_of(optimizer: Any) -> Callable[[], Any]:
    """What makes the optimizers of the stages: each like this one, which is not built yet.

    Raises:
        UsageError: it has to see the gradients of all stages at once.
    """
    if optimizer.global_clipnorm is not None:
        raise UsageError(
            f"strategy {PIPELINE}: the model was compiled with global_clipnorm={optimizer.global_clipnorm:g}, but no "
            "worker has the gradients of all stages; use clipnorm or clipvalue"
        )
    return lambda: type(optimizer).from_config(optimizer.get_config())


def make_stages(
    model: Any, parts: Sequence[Part], devices: Sequence[str], make_optimizer: Callable[[], Any]
) -> tuple[Stage, ...]:
    """The stages with the model's present weights. Its own variables are not used in training."""
    weights = list(enumerate(model.weights))
    return tuple(Stage(part, weights, device, make_optimizer()) for part, device in zip(parts, devices, strict=True))


def weights_of(stages: Sequence[Stage]) -> list[Any]:
    """The variables of all stages in the model's order."""
    placed = {index: variable for stage in stages for index, variable in stage.placed.items()}
    return [placed[index] for index in sorted(placed)]


def state_of(
    stages: Sequence[Stage], model: Any, make_optimizer: Callable[[], Any], *, step: Any, total_steps: Any
) -> State:
    """What a run must remember, in the same order as one optimizer over the whole model would have it.

    So any other strategy, and a pipeline of another number of stages, can go on with it. What each stage's optimizer
    has alike (its count of steps) is remembered once: see `share_counts`.
    """
    weights = weights_of(stages)
    whole = make_optimizer()
    whole.build([weight for weight in weights if weight.trainable])
    slots = {variable.name: variable for stage in reversed(_learning(stages)) for variable in stage.optimizer.variables}
    return State(
        weights=[weight.value for weight in weights],
        optimizer=[slots[variable.name].value for variable in whole.variables],
        step=step,
        total_steps=total_steps,
    )


def share_counts(stages: Sequence[Stage]) -> None:
    """After a restore: gives the count of steps that was remembered to the optimizers of all stages."""
    first, *others = _learning(stages)
    for stage in others:
        stage.optimizer.iterations.assign(first.optimizer.iterations.numpy())


def _learning(stages: Sequence[Stage]) -> list[Stage]:
    """Those whose optimizers are used at all: a stage may have nothing to train, as one that only flattens."""
    return [stage for stage in stages if stage.trainable]
