"""What a train step of the user's does with gradients, seen while TensorFlow traces it. Imports TensorFlow."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class Gradients:
    """The tensors that gradients were taken of, and the losses that an optimizer has scaled."""

    def __init__(self) -> None:
        self.targets: list[Any] = []
        self.scaled: list[tuple[Any, Any]] = []
        """(loss, scaled loss)."""
        self.taken: list[Any] = []
        """The gradients themselves, unscaled or not."""
        self.applied: list[Any] = []
        """What the optimizer was given."""

    def are_applied(self) -> bool:
        """Whether the optimizer was given all gradients, as they were taken or times a constant."""
        sources = [_source(one, self.taken) for one in self.applied]
        return all(one is not None for one in sources) and all(_is_in(one, sources) for one in self.taken)

    def are_of(self, losses: list[Any]) -> bool:
        """Whether gradients were taken of these tensors, scaled or not, and of nothing else."""
        known = [*losses, *(result for loss, result in self.scaled if _is_in(loss, losses))]
        return bool(self.targets) and all(_is_in(target, known) for target in self.targets)


@contextmanager
def watched(optimizer: Any) -> Iterator[Gradients]:
    """Notes every call of `GradientTape.gradient`, and the losses and gradients that this optimizer is given."""
    found = Gradients()
    take = tf.GradientTape.gradient
    name = "scale_loss" if hasattr(optimizer, "scale_loss") else "get_scaled_loss"
    scale = getattr(optimizer, name, None)

    @tf.autograph.experimental.do_not_convert
    def gradient(tape: Any, target: Any, *arguments: Any, **options: Any) -> Any:
        found.targets.extend(tf.nest.flatten(target))
        taken = take(tape, target, *arguments, **options)
        found.taken.extend(_present(taken))
        return taken

    @tf.autograph.experimental.do_not_convert
    def scaling(loss: Any) -> Any:
        assert scale is not None
        found.scaled.append((loss, scale(loss)))
        return found.scaled[-1][1]

    @tf.autograph.experimental.do_not_convert
    def unscaling(gradients: Any) -> Any:
        assert unscale is not None
        unscaled = unscale(gradients)
        if all(_is_in(one, found.taken) for one in _present(gradients)):
            found.taken = [one for one in found.taken if not _is_in(one, _present(gradients))]
            found.taken.extend(_present(unscaled))
        return unscaled

    @tf.autograph.experimental.do_not_convert
    def applying(gradients: Any, *arguments: Any, **options: Any) -> Any:
        gradients = list(gradients)
        found.applied.extend(_present([each[0] if isinstance(each, tuple) else each for each in gradients]))
        return apply(gradients, *arguments, **options)

    # In Keras 3 `apply_gradients` calls `apply`.
    applied_by = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
    apply, unscale = getattr(optimizer, applied_by), getattr(optimizer, "get_unscaled_gradients", None)
    replaced = {name: (scale, scaling), applied_by: (apply, applying), "get_unscaled_gradients": (unscale, unscaling)}
    replaced = {name: pair for name, pair in replaced.items() if pair[0] is not None}
    tf.GradientTape.gradient = gradient
    for method, (_, ours) in replaced.items():
        setattr(optimizer, method, ours)
    try:
        yield found
    finally:
        tf.GradientTape.gradient = take
        for method, (before, _) in replaced.items():
            setattr(optimizer, method, before)


def show_whole_losses(metrics: Sequence[Any], is_share: Callable[[Any], bool], replicas: int) -> None:
    """Lets metrics of a train step see the loss of the global batch where it gives them a replica's share of it.

    The shares add up to the loss, so the mean over the replicas of each share times their number is the loss.
    """

    def replace(metric: Any) -> None:
        update = metric.update_state

        def update_state(*values: Any, **options: Any) -> Any:
            return update(*(value * replicas if is_share(value) else value for value in values), **options)

        metric.update_state = update_state

    for metric in metrics:
        replace(metric)


def _present(gradients: Any) -> list[Any]:
    return [one for one in tf.nest.flatten(gradients) if one is not None]


def _source(tensor: Any, taken: list[Any]) -> Any:
    """The gradient that this one is, or is a multiple of; None if there is none."""
    while not _is_in(tensor, taken):
        operation = getattr(tensor, "op", None)
        if operation is None or operation.type not in ("Mul", "RealDiv"):
            return None
        left, right = operation.inputs
        if operation.type == "Mul" and left.op.type == "Const":
            left, right = right, left
        if right.op.type != "Const":
            return None
        tensor = left
    return tensor


def _is_in(tensor: Any, among: list[Any]) -> bool:
    return any(tensor is one for one in among)
