"""How far each stage is within a step, for the line that names the one that all wait for. Imports TensorFlow.

The workers count on their own processors what they begin and finish, as part of the step's graph. The leader reads the
counts when nothing moves any more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tensorflow as tf

from dtj_trainer.config.cluster import Task
from dtj_trainer.config.pipeline_layout import Layout

Tensor = Any

_FORWARD, _BACKWARD = 0, 2


@dataclass(frozen=True, kw_only=True)
class PieceCounts:
    """Of one stage, the micro-batches whose computation began and ended, in either direction.

    The last stage takes both directions at once; they count as forward.
    """

    forward_begun: int
    forward_ended: int
    backward_begun: int
    backward_ended: int

    @property
    def computes(self) -> bool:
        """Whether it has begun what it has not ended."""
        return self.forward_begun > self.forward_ended or self.backward_begun > self.backward_ended


class PieceCounter:
    """Counts, in the graph, what one stage begins and ends."""

    def __init__(self, device: str) -> None:
        """Args:
        device: a processor of the stage's worker.
        """
        with tf.device(device):
            self._counts = tf.Variable(tf.zeros(4, tf.int64), trainable=False)

    def begin(self, inputs: Tensor, *, backward: bool = False) -> None:
        """Counts a micro-batch as begun, once its inputs are there."""
        self._count(_BACKWARD if backward else _FORWARD, [inputs])

    def end(self, outputs: Sequence[Tensor], *, backward: bool = False) -> None:
        """Counts a micro-batch as ended, once all of its outputs are there."""
        self._count(1 + (_BACKWARD if backward else _FORWARD), outputs)

    def read(self) -> PieceCounts:
        """The counts now."""
        forward_begun, forward_ended, backward_begun, backward_ended = map(int, self._counts.numpy())
        return PieceCounts(
            forward_begun=forward_begun,
            forward_ended=forward_ended,
            backward_begun=backward_begun,
            backward_ended=backward_ended,
        )

    def _count(self, place: int, after: Sequence[Tensor]) -> None:
        with tf.control_dependencies(after), tf.device(self._counts.device):
            self._counts.assign_add(tf.one_hot(place, 4, dtype=tf.int64))


class StageProgress:
    """The counters of all stages, and of the leader's batches."""

    def __init__(self, layout: Layout, devices: Sequence[str]) -> None:
        """Args:
        devices: of each stage.
        """
        self._layout = layout
        self._batches = PieceCounter("/device:CPU:0")
        self._counters = [PieceCounter(_processor_next_to(device)) for device in devices]

    def counter(self, stage: int) -> PieceCounter:
        """Where a stage counts."""
        return self._counters[stage]

    def next_batch(self, iterator: Any) -> Any:
        """The leader's next batch, counted."""
        self._batches.begin(tf.constant(0))
        batch = next(iterator)
        self._batches.end(tf.nest.flatten(batch, expand_composites=True))
        return batch

    def find_late(self, here: Task) -> Mapping[Task, str]:
        """See `PipelineStep`; none if the counts do not tell."""
        worker = self._layout.worker
        counts = [counter.read() for counter in self._counters]
        found = {
            worker(stage): f"computes stage {stage} and does not finish"
            for stage, pieces in enumerate(counts)
            if pieces.computes
        }
        if not found and (link := missing(counts)):
            sender, receiver = link
            found[worker(receiver)] = f"does not receive what {worker(sender)} (stage {sender}) sends it"
        if not found and self._batches.read().computes:
            found[here] = "waits for its data"
        return found


def missing(stages: Sequence[PieceCounts]) -> tuple[int, int] | None:
    """The stage that sent something, and the one that did not receive it, where no stage computes any more.

    Args:
        stages: in order.
    """
    *earlier, last = stages
    for stage, (before, after) in enumerate(pairwise(stages)):
        if after.forward_begun < before.forward_ended:
            return stage, stage + 1
    sent = last.forward_ended
    for stage in reversed(range(len(earlier))):
        if earlier[stage].backward_begun < sent:
            return stage + 1, stage
        sent = earlier[stage].backward_ended
    return None


def _processor_next_to(device: str) -> str:
    """The CPU of the task that a device is of."""
    return str(tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0).to_string())
