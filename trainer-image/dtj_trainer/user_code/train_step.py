"""What a train step of the user's takes gradients of, seen while TensorFlow traces it. Imports TensorFlow."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf


class Gradients:
    """The tensors that gradients were taken of, and the losses that an optimizer has scaled."""

    def __init__(self) -> None:
        self.targets: list[Any] = []
        self.scaled: list[tuple[Any, Any]] = []
        """(loss, scaled loss)."""

    def are_of(self, losses: list[Any]) -> bool:
        """Whether gradients were taken of these tensors, scaled or not, and of nothing else."""
        known = [*losses, *(result for loss, result in self.scaled if _is_in(loss, losses))]
        return bool(self.targets) and all(_is_in(target, known) for target in self.targets)


@contextmanager
def watched(optimizer: Any) -> Iterator[Gradients]:
    """Notes every call of `GradientTape.gradient` and every loss that this optimizer scales."""
    found = Gradients()
    take = tf.GradientTape.gradient
    name = "scale_loss" if hasattr(optimizer, "scale_loss") else "get_scaled_loss"
    scale = getattr(optimizer, name, None)

    @tf.autograph.experimental.do_not_convert
    def gradient(tape: Any, target: Any, *arguments: Any, **options: Any) -> Any:
        found.targets.extend(tf.nest.flatten(target))
        return take(tape, target, *arguments, **options)

    @tf.autograph.experimental.do_not_convert
    def scaling(loss: Any) -> Any:
        assert scale is not None
        found.scaled.append((loss, scale(loss)))
        return found.scaled[-1][1]

    tf.GradientTape.gradient = gradient
    if scale is not None:
        setattr(optimizer, name, scaling)
    try:
        yield found
    finally:
        tf.GradientTape.gradient = take
        if scale is not None:
            setattr(optimizer, name, scale)


def _is_in(tensor: Any, among: list[Any]) -> bool:
    return any(tensor is one for one in among)
