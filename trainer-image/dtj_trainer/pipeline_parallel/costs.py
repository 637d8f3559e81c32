"""How long each link of a model takes, measured here. Imports TensorFlow."""

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.pipeline_parallel.graph_cut import Segment
from dtj_trainer.training.reporting import Run

log = logging.getLogger(__name__)

_ROUNDS = 5


def measure(chain: Sequence[Segment], *, run: Run, micro_batch: int) -> list[float]:
    """Seconds of each link, forward and backward, with one micro-batch of the data; the median of some rounds.

    Workers are taken to be alike, and like the leader. Two measurements never agree, so two runs may be cut at
    different places; what they learn does not depend on that.
    """
    log.info(f"measuring {len(chain)} parts of the model with micro-batches of {micro_batch}")
    tensor, _ = next(iter(run.data.batches(batch=micro_batch, seed=run.config.seed)))
    seconds = []
    for segment in chain:
        work = _work_of(segment)
        outputs, _ = work(tensor)
        seconds.append(statistics.median(_timed(work, tensor) for _ in range(_ROUNDS)))
        tensor = outputs
    return seconds


def _timed(work: Callable[[Any], Any], tensor: Any) -> float:
    began = time.perf_counter()
    for result in tf.nest.flatten(work(tensor)):
        result.numpy()
    return time.perf_counter() - began


def _work_of(segment: Segment) -> Callable[[Any], Any]:
    """The link's outputs, and something that needs all of its gradients."""
    model = segment.model()

    def work(tensor: Any) -> tuple[Any, Any]:
        weights = [variable.value for variable in model.trainable_variables]
        found = [variable.value for variable in model.non_trainable_variables]
        with tf.GradientTape() as tape:
            sources = [tf.identity(value) for value in [*weights, tensor] if value.dtype.is_floating]
            tape.watch(sources)
            inputs = sources[len(weights)] if tensor.dtype.is_floating else tensor
            outputs, _ = model.stateless_call(sources[: len(weights)], found, inputs, training=True)
        gradients = tape.gradient(outputs, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return outputs, [tf.reduce_sum(tf.convert_to_tensor(gradient)) for gradient in gradients]

    compiled: Callable[[Any], Any] = tf.function(work)
    return compiled
