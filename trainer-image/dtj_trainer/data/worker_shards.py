"""Which shard of the data each worker reads: its part of every global batch.

Files are not divided among the workers. Each batch is, in order, so that the workers train on the batches of one
device, however many they are. Imports TensorFlow.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from dtj_trainer.data.source import Source, Stream


@dataclass(frozen=True, kw_only=True)
class Share:
    """One worker's part of every global batch."""

    worker: int = 0
    workers: int = 1
    replicas: int = 1
    """On each worker."""

    def rows(self, batch: int) -> tuple[int, int]:
        """The first row of a global batch that is this worker's, and the first that is not. The first workers get
        one more each where it does not divide, as TensorFlow does it."""
        least, more = divmod(batch, self.workers)
        first = self.worker * least + min(self.worker, more)
        return first, first + least + (self.worker < more)


@runtime_checkable
class Divisible(Protocol):
    """A source that can leave out what is other workers' before it costs anything."""

    def share_of_batches(self, *, batch: int, seed: Any, first_step: int, share: Share, offset: int = 0) -> Stream:
        """As `Source.batches`, but only the worker's part of each, cut into equal batches for its replicas."""
        ...


def distributed(source: Source, strategy: Any, *, batch: int, seed: int, first_step: int, offset: int = 0) -> Any:
    """The batches as the strategy takes them: every global batch is divided among the replicas, in order.

    The single CPU of OneDevice takes them as they are: TensorFlow's distributed dataset would copy each through a
    background thread to where it is already, which took a quarter of the time of a small model's step.

    TensorFlow's own DATA sharding has each worker read and decode every example, and then throws the others' away.
    """
    replicas = strategy.num_replicas_in_sync
    workers = replicas // len(strategy.extended.worker_devices)
    # Parts of different sizes for the replicas of one worker are left to TensorFlow, which can do that.
    uneven = workers < replicas and batch % replicas
    if workers == 1 or uneven or not isinstance(source, Divisible):
        batches = source.batches(batch=batch, seed=seed, first_step=first_step, offset=offset)
        return batches if _is_one_cpu(strategy) else strategy.experimental_distribute_dataset(batches)

    def local(context: Any) -> Stream:
        share = Share(worker=context.input_pipeline_id, workers=workers, replicas=replicas // workers)
        return source.share_of_batches(batch=batch, seed=seed, first_step=first_step, share=share, offset=offset)

    return strategy.distribute_datasets_from_function(local)


def _is_one_cpu(strategy: Any) -> bool:
    """Whether all batches go to the CPU where they are made."""
    if not isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return False
    (device,) = strategy.extended.worker_devices
    return bool(tf.DeviceSpec.from_string(device).device_type == "CPU")
