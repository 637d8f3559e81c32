"""One step of GPipe, as one graph over all workers: micro-batches forward, backward, one synchronous update.

Each stage takes the micro-batches in turn, all forward and then all backward; the last one takes each forward and
backward at once. Only what goes in at a stage is kept until its gradient comes, and its inner results are computed a
second time then (re-materialised). The gradients of all micro-batches are summed on the stage before its optimizer
gets them. Imports TensorFlow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import tensorflow as tf

from dtj_trainer.checkpoint.finite_weights import all_finite
from dtj_trainer.config.cluster import Task
from dtj_trainer.config.pipeline_layout import Layout
from dtj_trainer.distribution.agreement import Vote
from dtj_trainer.pipeline_parallel.stages import Stage
from dtj_trainer.training.controller import StepResult
from dtj_trainer.training.metric_values import Measured, means_by_example
from dtj_trainer.training.model import ModelFactory

Tensor = Any


class _Work:
    """What a task does one piece after another, as its processor counts: an odd number while a piece is under way."""

    def __init__(self, device: str) -> None:
        """Args:
        device: any of the task.
        """
        here = tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0).to_string()
        with tf.device(here):
            self._count = tf.Variable(0, dtype=tf.int64, trainable=False)

    def count(self, *after: Tensor) -> None:
        """Counts, in the graph, that a piece begins or ends, once these are there."""
        with tf.control_dependencies(after), tf.device(self._count.device):
            self._count.assign_add(1)

    @property
    def is_under_way(self) -> bool:
        """Can be asked while the graph runs."""
        return int(self._count.numpy()) % 2 == 1


@dataclass
class _StageInStep:
    """A stage, while a step is being laid out."""

    stage: Stage
    work: _Work
    weights: list[Tensor]
    state: list[Tensor]
    last: list[Tensor]
    """What it computed last; the next thing waits for it. Left to itself, TensorFlow would begin all micro-batches
    at once and finish none early, and the stages after it would wait."""
    share: float
    """Of a penalty on the weights: it is added once a step, and each micro-batch has it."""
    scale: Tensor | None
    """Of the loss, where it is scaled."""
    gradients: list[Tensor] | None = None
    finite: list[Tensor] = field(default_factory=list)
    """Of each micro-batch, whether all that came out is finite, the penalty included; of the last stage, the loss."""
    penalties: list[Tensor] = field(default_factory=list)
    """Of each micro-batch, what the layers want added to the loss."""

    def take(self, tensor: Tensor, *after: Tensor) -> Tensor:
        """The tensor here, once what was computed last, and more, is there."""
        with tf.control_dependencies([*self.last, *after]):
            return tf.identity(tensor)

    def finite_forward_and_backward(self) -> list[Tensor]:
        """Whether all that this stage gave in the step is finite: what came out of it, and its gradients."""
        with tf.device(self.stage.device):
            return [tf.reduce_all(self.finite), all_finite(self.gradients or ())]

    def penalty(self) -> Tensor:
        """What the layers add to the loss of the batch."""
        with tf.device(self.stage.device):
            return tf.add_n(self.penalties) * self.share

    def add(self, gradients: Sequence[Tensor]) -> None:
        """Sums what one micro-batch gives."""
        before = self.gradients
        self.gradients = [*gradients] if before is None else [*map(_sum, before, gradients)]


def _sum(one: Tensor, other: Tensor) -> Tensor:
    """Of two gradients of a weight. The rows of an embedding stay rows, as one device gives them to the optimizer.

    Some optimizers of Keras, such as Adam, square each row by itself, also where several are of one word.
    """
    rows = one, other
    if not all(isinstance(each, tf.IndexedSlices) for each in rows):
        return tf.convert_to_tensor(one) + tf.convert_to_tensor(other)
    values, indices = (tf.concat([getattr(each, name) for each in rows], 0) for name in ("values", "indices"))
    return tf.IndexedSlices(values, indices, one.dense_shape)


@dataclass(frozen=True)
class _Kept:
    """What a stage keeps of a micro-batch between forward and backward."""

    inputs: Tensor
    state: Sequence[Tensor]


class PipelineStep:
    """Runs steps of one model over the stages of a layout."""

    def __init__(
        self, *, layout: Layout, model: ModelFactory, stages: Sequence[Stage], step: Any, batch: int,
        skips: bool = False,
    ) -> None:  # fmt: skip
        """Args:
        step: int64 tf.Variable; counts the steps done.
        batch: global batch size; a multiple of `layout.micro_batches`.
        skips: whether an update is left out on all stages if the loss or a gradient is not finite.
        """
        self._reading = _Work("/device:CPU:0")
        self._works = [_Work(stage.device) for stage in stages]
        self._layout = layout
        self._model = model
        self._stages = stages
        self._step = step
        self._batch = batch
        self._skips = skips
        self._gradients_spoiled_by = -1
        """The stage whose gradients in the last step are not finite: see `_first_places`."""

    def run(self, iterator: Any, steps: int, vote: Callable[[], Vote]) -> StepResult:
        """See `InnerLoop`."""
        arguments = tf.constant(steps, tf.int64), tf.constant(self._gradients_spoiled_by, tf.int64)
        found, first, place, spoiled_by, skipped = self._run(iterator, *arguments)
        self._gradients_spoiled_by = int(spoiled_by)
        sums = [*found.numpy(), (steps - int(skipped)) * self._batch]
        now, first_stage = vote(), self._name(int(place))
        return StepResult(
            metrics=Measured(sums, partial(means_by_example, self._model.metrics)),
            steps=steps, stop=now.stop, save=now.save, next_steps=None,
            not_finite_step=int(first) or None,
            not_finite_workers=[first_stage] if first_stage else (),
            skipped=int(skipped),
        )  # fmt: skip

    def find_late(self, here: Task) -> Mapping[Task, str]:
        """The tasks that the others wait for in a step that does not end, and what each of them does.

        Args:
            here: the task of this process, which reads the batches.
        """
        found = {
            self._layout.worker(stage): f"computes stage {stage} and does not finish"
            for stage, work in enumerate(self._works)
            if work.is_under_way
        }
        return found or ({here: "waits for its data"} if self._reading.is_under_way else {})

    @property
    def gradients_not_finite(self) -> str | None:
        """The worker whose stage was the first to give gradients that are not finite, in the last step."""
        return self._name(self._gradients_spoiled_by)

    def _name(self, place: int) -> str | None:
        return None if place < 0 else self._layout.describe(place)

    @tf.function(reduce_retracing=True)
    def _run(self, iterator: Any, steps: Tensor, spoiled_by: Tensor) -> tuple[Tensor, ...]:
        sums, not_finite = tf.zeros(len(self._model.metrics)), tf.constant(0, tf.int64)
        place, skipped = tf.constant(-1, tf.int64), tf.constant(0, tf.int64)
        for number in tf.range(steps):
            self._reading.count()
            inputs, labels = next(iterator)
            self._reading.count(*tf.nest.flatten((inputs, labels), expand_composites=True))
            gradients, states, metrics, all_finite = self.gradients(inputs, labels)
            finite = self._finite(gradients)
            forward, backward = self._first_places(all_finite)
            # The loss is the first of the metrics.
            is_good = tf.math.is_finite(metrics[0])
            if self._skips:
                # Gradients that overflow under loss scaling are the optimizer's: it lowers the scale.
                is_good = is_good & (backward < 0) if finite is None else is_good
                tf.cond(is_good, partial(self._learn, gradients, states, finite), lambda: None)
                metrics = tf.where(is_good, metrics, 0.0)
                skipped += tf.cast(tf.logical_not(is_good), tf.int64)
                # They are not applied, and so spoil no weights.
                forward, backward = tf.where(forward < 0, backward, forward), tf.constant(-1, tf.int64)
            else:
                self._learn(gradients, states, finite)
            sums += metrics
            fresh = tf.equal(not_finite, 0) & tf.logical_not(is_good)
            not_finite = tf.where(fresh, number + 1, not_finite)
            # Gradients of the step before have spoiled the weights, and so all that follows.
            place = tf.where(fresh, tf.where(spoiled_by < 0, forward, spoiled_by), place)
            # Under loss scaling, such a step is left out.
            spoiled_by = backward if finite is None else spoiled_by
            self._step.assign_add(1)
        return sums, not_finite, place, spoiled_by, skipped

    def _learn(
        self, gradients: Sequence[Sequence[Tensor]], states: Sequence[Sequence[Tensor]], finite: Tensor | None
    ) -> None:
        """The update of all stages."""
        for stage, sum_, state in zip(self._stages, gradients, states, strict=True):
            stage.learn(sum_, finite=finite)
            for variable, value in zip(stage.state, state, strict=True):
                variable.assign(value)

    def _first_places(self, all_finite: Tensor) -> tuple[Tensor, Tensor]:
        """The stages that were the first to give what is not finite, forward and backward; -1 if none did.

        It is the first forward, and the last backward, because each stage spoils the ones after it.

        Args:
            all_finite: of each stage and direction, whether all that came from there is finite.
        """
        bad = tf.cast(tf.logical_not(all_finite), tf.int64)
        forward, backward = bad[:, 0], bad[:, 1]
        last = self._layout.stages - 1 - tf.argmax(tf.reverse(backward, [0]))
        return (
            tf.where(tf.reduce_any(forward > 0), tf.argmax(forward), -1),
            tf.where(tf.reduce_any(backward > 0), last, -1),
        )

    def gradients(
        self, inputs: Tensor, labels: Tensor
    ) -> tuple[list[list[Tensor]], list[list[Tensor]], Tensor, Tensor]:
        """Of each stage the gradients of the mean loss over the batch and the state after it, and each metric's sum.

        And of each stage and direction (forward, backward), whether all that came from there is finite.

        State that every micro-batch moves on, such as moving statistics, is moved on by one after the other.
        """
        count = self._layout.micro_batches
        stages = self._stages_in_step()
        first = tf.convert_to_tensor(self._step) * count
        draws = [first + place for place in range(count)]
        loss, *others = tf.unstack(
            tf.add_n(self._pass(stages, tf.split(inputs, count), tf.split(labels, count), draws))
        )
        # Each example's loss has them, as the loss of the batch does.
        loss += tf.add_n([each.penalty() for each in stages]) * self._batch
        all_finite = tf.stack([each.finite_forward_and_backward() for each in stages])
        return (
            [each.gradients or [] for each in stages],
            [each.state for each in stages],
            tf.stack([loss, *others]),
            all_finite,
        )

    def _finite(self, gradients: Sequence[Sequence[Tensor]]) -> Tensor | None:
        """Whether the gradients of all stages are: one that overflowed has all skip the step."""
        if not any(stage.scales_loss for stage in self._stages):
            return None
        found = []
        for stage, sums in zip(self._stages, gradients, strict=True):
            with tf.device(stage.device):
                found.append(all_finite(sums))
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

    def _stages_in_step(self) -> list[_StageInStep]:
        stages_in_step, scale = [], self._scale()
        for stage, work in zip(self._stages, self._works, strict=True):
            with tf.device(stage.device):
                weights = [tf.identity(variable.value) for variable in stage.trainable]
                state = [tf.identity(variable.value) for variable in stage.state]
            share = 1 / self._layout.micro_batches
            stages_in_step.append(_StageInStep(stage, work, weights, state, last=[], share=share, scale=scale))
        return stages_in_step

    def _pass(
        self,
        stages_in_step: Sequence[_StageInStep],
        inputs: Sequence[Tensor],
        labels: Sequence[Tensor],
        draws: Sequence[Tensor],
    ) -> list[Tensor]:
        """All micro-batches, forward and backward; returns the sums of their metrics."""
        *earlier, last = stages_in_step
        kept: list[list[_Kept]] = [[] for _ in earlier]
        metrics, backward = [], []
        for tensor, label, draw in zip(inputs, labels, draws, strict=True):
            for stage_in_step, keep in zip(earlier, kept, strict=True):
                with tf.device(stage_in_step.stage.device):
                    keep.append(_Kept(stage_in_step.take(tensor), stage_in_step.state))
                    stage_in_step.work.count(keep[-1].inputs)
                    output = stage_in_step.stage.call(
                        stage_in_step.weights, stage_in_step.state, keep[-1].inputs, draw=draw
                    )
                    tensor, stage_in_step.state = output.outputs, output.state
                    stage_in_step.penalties.append(output.penalty)
                    stage_in_step.finite.append(all_finite([tensor, output.penalty]))
                    stage_in_step.last = [tensor]
                    stage_in_step.work.count(*stage_in_step.last)
            gradient, sums = self._last_stage(last, tensor, label, draw, inward=bool(earlier))
            metrics.append(sums)
            backward.append(gradient)
        for place, draw in enumerate(draws):
            gradient = backward[place]
            for index in reversed(range(len(earlier))):
                gradient = _backward(earlier[index], kept[index][place], gradient, draw, inward=index > 0)
        return metrics

    def _last_stage(
        self, stage_in_step: _StageInStep, tensor: Tensor, labels: Tensor, draw: Tensor, *, inward: bool
    ) -> tuple[Any, Tensor]:
        """The last stage: forward, the loss and backward at once; returns the gradient of what came in, and sums."""
        with tf.device(stage_in_step.stage.device):
            inputs = stage_in_step.take(tensor)
            stage_in_step.work.count(inputs)
            sources = [*stage_in_step.weights, *([inputs] if inward else [])]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                output = stage_in_step.stage.call(stage_in_step.weights, stage_in_step.state, inputs, draw=draw)
                metrics = self._model.compute_metrics(output.outputs, labels)
                loss = tf.reduce_sum(metrics["loss"]) / self._batch + output.penalty * stage_in_step.share
                loss = loss if stage_in_step.scale is None else loss * stage_in_step.scale
            stage_in_step.state = output.state
            sums = tf.stack([tf.reduce_sum(values) for values in metrics.values()])
            stage_in_step.penalties.append(output.penalty)
            stage_in_step.finite.append(all_finite([sums[0], output.penalty]))
            found = tape.gradient(loss, sources, unconnected_gradients=_ZERO)
            gradient = _settle(stage_in_step, found, inward=inward)
            stage_in_step.work.count(*stage_in_step.last, sums)
            return gradient, sums


_ZERO = tf.UnconnectedGradients.ZERO


def _backward(stage_in_step: _StageInStep, kept: _Kept, gradient: Tensor, draw: Tensor, *, inward: bool) -> Any:
    """An earlier stage: its part once more, and the gradient through it; returns that of what came in."""
    with tf.device(stage_in_step.stage.device):
        # Waits for the gradient: what is computed earlier would have to be kept, and is the same as the first time.
        inputs = stage_in_step.take(kept.inputs, gradient)
        stage_in_step.work.count(inputs)
        sources = [*stage_in_step.weights, *([inputs] if inward else [])]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            output = stage_in_step.stage.call(stage_in_step.weights, kept.state, inputs, draw=draw)
            penalty = output.penalty * stage_in_step.share
        found = tape.gradient(
            [output.outputs, penalty], sources,
            output_gradients=[gradient, tf.ones_like(penalty) if stage_in_step.scale is None else stage_in_step.scale],
            unconnected_gradients=_ZERO,
        )  # fmt: skip
        gradient = _settle(stage_in_step, found, inward=inward)
        stage_in_step.work.count(*stage_in_step.last)
        return gradient


def _settle(stage_in_step: _StageInStep, found: list[Tensor], *, inward: bool) -> Any:
    """Adds a micro-batch's gradients to the stage's; returns that of the stage's input, if there is one."""
    gradient = found.pop() if inward else None
    stage_in_step.add(found)
    stage_in_step.last = [*found, *([gradient] if inward else [])]
    return gradient
