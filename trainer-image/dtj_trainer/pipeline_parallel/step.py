"""One step of GPipe, as one graph over all workers: micro-batches forward, backward, one synchronous update.

Each stage takes the micro-batches in turn, all forward and then all backward; the last one takes each forward and
backward at once. Only what goes in at a stage is kept until its gradient comes, and its inner results are computed a
second time then (re-materialised). The gradients of all micro-batches and replicas are summed on the stage before its
optimizer gets them. Imports TensorFlow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tensorflow as tf

from dtj_trainer.pipeline_parallel.layout import Layout
from dtj_trainer.pipeline_parallel.stages import Stage
from dtj_trainer.tasks import Task
from dtj_trainer.tasks.aggregation import Measured, means_by_example

Tensor = Any


@dataclass
class _ReplicaStage:
    """A stage in one replica, while a step is being laid out."""

    stage: Stage
    device: str
    weights: list[Tensor]
    state: list[Tensor]
    start: list[Tensor]
    """The state at the start of the step."""
    last: list[Tensor]
    """What it computed last; the next thing waits for it. Left to itself, TensorFlow would begin all micro-batches
    at once and finish none early, and the stages after it would wait."""
    share: float
    """Of a penalty on the weights: it is added once a step, and each micro-batch has it."""
    scale: Tensor | None
    """Of the loss, where it is scaled."""
    gradients: list[Tensor] | None = None

    def take(self, tensor: Tensor, *after: Tensor) -> Tensor:
        """The tensor here, once what was computed last, and more, is there."""
        with tf.control_dependencies([*self.last, *after]):
            return tf.identity(tensor)

    def add(self, gradients: Sequence[Tensor]) -> None:
        """Sums what one micro-batch gives."""
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        self.gradients = dense if self.gradients is None else _sums(self.gradients, dense)


@dataclass(frozen=True)
class _Kept:
    """What a stage keeps of a micro-batch between forward and backward."""

    inputs: Tensor
    state: Sequence[Tensor]


class Pipeline:
    """Runs steps of one model over the stages of a layout."""

    def __init__(
        self, *, layout: Layout, task: Task, stages: Sequence[Stage], devices: Sequence[Sequence[str]], step: Any,
        batch: int,
    ) -> None:  # fmt: skip
        """Args:
        devices: of each replica, of each stage; those of the first replica are where the stages' variables are.
        step: int64 tf.Variable; counts the steps done.
        batch: global batch size; a multiple of `layout.shares`.
        """
        self._layout = layout
        self._task = task
        self._stages = stages
        self._devices = devices
        self._step = step
        self._batch = batch

    def run(self, iterator: Any, steps: int) -> tuple[Measured, int | None]:
        """Takes this many steps.

        Returns:
            The mean of each metric over their examples; and of these steps, counted from 1, the first whose loss is
            not finite.
        """
        found, first = self._run(iterator, tf.constant(steps, tf.int64))
        sums = [*found.numpy(), steps * self._batch]
        return Measured(sums, partial(means_by_example, self._task.metrics)), int(first) or None

    @tf.function(reduce_retracing=True)
    def _run(self, iterator: Any, steps: Tensor) -> tuple[Tensor, Tensor]:
        sums, not_finite = tf.zeros(len(self._task.metrics)), tf.constant(0, tf.int64)
        for number in tf.range(steps):
            inputs, labels = next(iterator)
            gradients, states, metrics = self.gradients(inputs, labels)
            finite = self._finite(gradients)
            for stage, sum_, state in zip(self._stages, gradients, states, strict=True):
                stage.learn(sum_, finite=finite)
                for variable, value in zip(stage.state, state, strict=True):
                    variable.assign(value)
            sums += metrics
            # The loss is the first of the metrics.
            fresh = tf.equal(not_finite, 0) & tf.logical_not(tf.math.is_finite(metrics[0]))
            not_finite = tf.where(fresh, number + 1, not_finite)
            self._step.assign_add(1)
        return sums, not_finite

    def gradients(self, inputs: Tensor, labels: Tensor) -> tuple[list[list[Tensor]], list[list[Tensor]], Tensor]:
        """Of each stage the gradients of the mean loss over the batch and the state after it, and each metric's sum.

        State that every micro-batch moves on, such as moving statistics, is moved on by one after the other within a
        replica, and is the mean over the replicas.
        """
        layout = self._layout
        shares = [tf.split(values, layout.shares) for values in (inputs, labels)]
        first = tf.convert_to_tensor(self._step) * layout.shares
        replicas, metrics = [], []
        for replica in range(layout.replicas):
            mine = slice(replica * layout.micro_batches, (replica + 1) * layout.micro_batches)
            replica_stages = self._replica_stages(replica)
            draws = [first + place for place in range(mine.start, mine.stop)]
            metrics += self._pass(replica_stages, shares[0][mine], shares[1][mine], draws)
            replicas.append(replica_stages)
        gradients, states = [], []
        for stage, alike in zip(self._stages, zip(*replicas, strict=True), strict=True):
            with tf.device(stage.device):
                sums = [replica_stage.gradients for replica_stage in alike if replica_stage.gradients is not None]
                gradients.append([tf.add_n(same) for same in zip(*sums, strict=True)])
                states.append(
                    [
                        _mean(moved, start)
                        for start, *moved in zip(
                            alike[0].start, *(replica_stage.state for replica_stage in alike), strict=True
                        )
                    ]
                )
        return gradients, states, tf.add_n(metrics)

    def _finite(self, gradients: Sequence[Sequence[Tensor]]) -> Tensor | None:
        """Whether the gradients of all stages are: one that overflowed has all skip the step."""
        if not any(stage.scales_loss for stage in self._stages):
            return None
        found = []
        for stage, sums in zip(self._stages, gradients, strict=True):
            with tf.device(stage.device):
                found += [tf.reduce_all(tf.math.is_finite(sum_)) for sum_ in sums]
        return tf.reduce_all(found)

    def _scale(self) -> Tensor | None:
        """What the loss is multiplied by; the optimizers of all stages have the same."""
        for stage in self._stages:
            if stage.trainable:
                one = tf.constant(1.0)
                with tf.device(stage.device):
                    scale = stage.optimizer.scale_loss(one)
                return None if scale is one else scale
        return None

    def _replica_stages(self, replica: int) -> list[_ReplicaStage]:
        replica_stages, scale = [], self._scale()
        for stage, device in zip(self._stages, self._devices[replica], strict=True):
            with tf.device(device):
                # Read once: the other replicas fetch the weights once a step, not once a micro-batch.
                weights = [tf.identity(variable.value) for variable in stage.trainable]
                state = [tf.identity(variable.value) for variable in stage.state]
            replica_stages.append(
                _ReplicaStage(
                    stage, device, weights, state, start=state, last=[], share=1 / self._layout.shares, scale=scale
                )
            )
        return replica_stages

    def _pass(
        self,
        replica_stages: Sequence[_ReplicaStage],
        inputs: Sequence[Tensor],
        labels: Sequence[Tensor],
        draws: Sequence[Tensor],
    ) -> list[Tensor]:
        """All micro-batches of one replica, forward and backward; returns the sums of their metrics."""
        *earlier, last = replica_stages
        kept: list[list[_Kept]] = [[] for _ in earlier]
        metrics, backward = [], []
        for tensor, label, draw in zip(inputs, labels, draws, strict=True):
            for replica_stage, keep in zip(earlier, kept, strict=True):
                with tf.device(replica_stage.device):
                    keep.append(_Kept(replica_stage.take(tensor), replica_stage.state))
                    output = replica_stage.stage.call(
                        replica_stage.weights, replica_stage.state, keep[-1].inputs, draw=draw
                    )
                    tensor, replica_stage.state = output.outputs, output.state
                    replica_stage.last = [tensor]
            gradient, sums = self._last_stage(last, tensor, label, draw, inward=bool(earlier))
            metrics.append(sums)
            backward.append(gradient)
        for place, draw in enumerate(draws):
            gradient = backward[place]
            for index in reversed(range(len(earlier))):
                gradient = _backward(earlier[index], kept[index][place], gradient, draw, inward=index > 0)
        return metrics

    def _last_stage(
        self, replica_stage: _ReplicaStage, tensor: Tensor, labels: Tensor, draw: Tensor, *, inward: bool
    ) -> tuple[Any, Tensor]:
        """The last stage: forward, the loss and backward at once; returns the gradient of what came in, and sums."""
        with tf.device(replica_stage.device):
            inputs = replica_stage.take(tensor)
            sources = [*replica_stage.weights, *([inputs] if inward else [])]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                output = replica_stage.stage.call(replica_stage.weights, replica_stage.state, inputs, draw=draw)
                metrics = self._task.compute_metrics(output.outputs, labels)
                loss = tf.reduce_sum(metrics["loss"]) / self._batch + output.penalty * replica_stage.share
                loss = loss if replica_stage.scale is None else loss * replica_stage.scale
            replica_stage.state = output.state
            sums = tf.stack([tf.reduce_sum(metrics[name]) for name in self._task.metrics])
            return _settle(
                replica_stage, tape.gradient(loss, sources, unconnected_gradients=_ZERO), inward=inward
            ), sums


_ZERO = tf.UnconnectedGradients.ZERO


def _backward(replica_stage: _ReplicaStage, kept: _Kept, gradient: Tensor, draw: Tensor, *, inward: bool) -> Any:
    """An earlier stage: its part once more, and the gradient through it; returns that of what came in."""
    with tf.device(replica_stage.device):
        # Waits for the gradient: what is computed earlier would have to be kept, and is the same as the first time.
        inputs = replica_stage.take(kept.inputs, gradient)
        sources = [*replica_stage.weights, *([inputs] if inward else [])]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            output = replica_stage.stage.call(replica_stage.weights, kept.state, inputs, draw=draw)
            penalty = output.penalty * replica_stage.share
        found = tape.gradient(
            [output.outputs, penalty], sources,
            output_gradients=[gradient, tf.ones_like(penalty) if replica_stage.scale is None else replica_stage.scale],
            unconnected_gradients=_ZERO,
        )  # fmt: skip
        return _settle(replica_stage, found, inward=inward)


def _settle(replica_stage: _ReplicaStage, found: list[Tensor], *, inward: bool) -> Any:
    """Adds a micro-batch's gradients to the stage's; returns that of the stage's input, if there is one."""
    gradient = found.pop() if inward else None
    replica_stage.add(found)
    replica_stage.last = [*found, *([gradient] if inward else [])]
    return gradient


def _sums(left: Sequence[Tensor], right: Sequence[Tensor]) -> list[Tensor]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _mean(moved: Sequence[Tensor], start: Tensor) -> Tensor:
    """Of what the replicas made of a state. What none of them touches, such as a constant, stays to the bit."""
    if moved[0] is start or len(moved) == 1 or not start.dtype.is_floating:
        return moved[0]
    return tf.add_n(moved) / len(moved)
