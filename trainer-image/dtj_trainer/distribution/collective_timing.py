"""How long a worker waits for the others in its steps: what is left of a step shows who it is that all wait for.

Workers in step all take as long for a step as the slowest one, and they wait inside TensorFlow's graph. So the graph
notes the time when a replica has what it brings to a sum over all replicas, and the time when the sum is there. Between
the two lie the waiting and the transfer, which is the same for all. Nothing but that note depends on the two times, so
that the graph runs as it would without them, and gives the same bits. Imports TensorFlow.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.compat import tensorflow as compat


def of(strategy: Any, *, counts: bool = False) -> "Waiting | None":
    """Watches a strategy from now on; None where its replicas are all in this process.

    Args:
        counts: whether to count the sums.
    """
    extended = strategy.extended
    return Waiting(strategy, counts=counts) if strategy.num_replicas_in_sync > len(extended.worker_devices) else None


class Waiting:
    """Adds up how long this worker waits in sums over the replicas of a strategy."""

    def __init__(self, strategy: Any, *, counts: bool) -> None:
        """Args:
        strategy: MultiWorkerMirroredStrategy; all of its sums come by `reduce_to` or `batch_reduce_to`, be they of
            gradients, of a normalization's means, or of whether there is a next batch.
        counts: whether to count the sums.
        """
        self._of_each = strategy.experimental_local_results
        extended = strategy.extended
        self._replicas = len(extended.worker_devices)
        first = tf.DeviceSpec.from_string(extended.worker_devices[0])
        self._host = first.replace(device_type="CPU", device_index=0).to_string()
        with tf.device(self._host):
            self._seconds = tf.Variable(tf.zeros(self._replicas, tf.float64), trainable=False)
            # Sums wait for their turn: what one waits for is not to be counted again by the next.
            self._until = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._sums = [tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2 if counts else 0)]
        self.in_eager_sum = False
        """Whether this worker waits in a sum outside of a graph, as when a variable of all replicas is read."""
        compat.replace_reductions(strategy, self._timing)

    def _timing(
        self, reduce_one: Callable[..., Any], reduce_several: Callable[..., Any]
    ) -> tuple[Callable[..., Any], Callable[..., Any]]:
        @tf.autograph.experimental.do_not_convert
        def reduce_to(reduce_op: Any, value: Any, destinations: Any, options: Any = None) -> Any:
            return self._timed([value], lambda: [reduce_one(reduce_op, value, destinations, options)])[0]

        @tf.autograph.experimental.do_not_convert
        def batch_reduce_to(reduce_op: Any, value_destination_pairs: Any, options: Any = None) -> Any:
            values = [value for value, _ in value_destination_pairs]
            return self._timed(values, lambda: reduce_several(reduce_op, value_destination_pairs, options))

        return reduce_to, batch_reduce_to

    @property
    def seconds(self) -> Any:
        """Since the strategy is watched; of several replicas here, of the one that waited least: a tensor."""
        return tf.reduce_min(self._seconds)

    @property
    def begun_and_ended(self) -> tuple[int, int]:
        """The sums that this worker brought its part to, and those of them that are there.

        Can be read while it waits; only with `counts`.
        """
        begun, ended = (int(each.numpy()) for each in self._sums)
        return begun, ended

    def _count(self, which: int, after: Any) -> None:
        if self._sums:
            with tf.control_dependencies([after]), tf.device(self._host):
                self._sums[which].assign_add(1)

    def _timed(self, values: Sequence[Any], reduce: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        brought = [self._of_each(value) for value in values]
        # What is the same for all replicas of a worker is there once.
        of_replicas = [[each[replica % len(each)] for each in brought] for replica in range(self._replicas)]
        began = tf.stack([self._when(each) for each in of_replicas])
        self._count(0, began)
        self.in_eager_sum = tf.executing_eagerly()
        reduced = reduce()
        self.in_eager_sum = False
        ended = self._when([self._of_each(each) for each in reduced])
        self._count(1, ended)
        with tf.device(self._host):
            waited = ended - tf.maximum(began, self._until)
            self._seconds.assign_add(tf.maximum(waited, tf.zeros_like(waited)))
            self._until.assign(ended)
        return reduced

    def _when(self, values: Any) -> Any:
        """The time at which all of this is computed."""
        tensors = [one for one in tf.nest.flatten(values, expand_composites=True) if tf.is_tensor(one)]
        # Grouped by device: a dependency from one device to another costs a message each.
        with tf.control_dependencies([tf.group(*tensors)]), tf.device(self._host):
            return tf.timestamp()
