"""How the data of `fit`, `evaluate` and `predict` are divided among several workers. Imports TensorFlow and Keras.

TensorFlow divides them by files where it can, before all else that a pipeline does, and takes for granted that all
workers bring the same data. Each has to be so, or the examples are not those of one device: no line would say it.
"""

import functools
import logging
import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from dtj_trainer.compat import incompatible, private
from dtj_trainer.distribution.agreement import of_each_replica
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit import counted, pipelines
from dtj_trainer.process.ending import place_of_call

try:
    from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
    from tensorflow.python.eager import context
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

log = logging.getLogger(__name__)

_Policy = tf.data.experimental.AutoShardPolicy
_first: WeakKeyDictionary[Any, "_First"] = WeakKeyDictionary()
"""By the iterator of an epoch that is divided by its batches."""
_SHARED = "give all of the data on each worker, without shard() and without parts of its own: each trains its part"
_OFF = "or, if each worker has examples of its own, give a tf.data.Dataset with AutoShardPolicy.OFF"


@dataclass(frozen=True)
class _First:
    """Digests of the first batch of all workers, once it is read, and whether chance may be in it."""

    draws: bool
    noted: list[Sequence[int]] = field(default_factory=list)


def workers_of(strategy: Any) -> int:
    """How many workers a strategy has that train one model."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 1
    return int(strategy.num_replicas_in_sync // len(strategy.extended.worker_devices))


def distribute(epoch: Any, strategy: Any, *, rows_in_order: bool) -> Any:
    """The data of an iterator of epochs, distributed to several workers. All of them have to call it.

    Data that are the same on all workers are divided by their batches, or by files where that has the same examples.
    With AutoShardPolicy.OFF, each worker has its own, and the epoch ends when all have ended.

    Args:
        epoch: Keras' iterator; it gets another number of batches where each worker has its own data.
        rows_in_order: whether the order of the examples matters, or where they end.

    Raises:
        UsageError: the workers have different data, or a service gives them; on all workers.
    """
    with _shuffled_alike(epoch.data_adapter, strategy):
        dataset = epoch.data_adapter.get_tf_dataset()
    if isinstance(dataset, tf.distribute.DistributedDataset):
        return dataset
    if not isinstance(dataset, tf.data.Dataset):  # Keras says what is wrong with it
        return strategy.experimental_distribute_dataset(dataset)
    own = _shares(strategy, dataset)
    counted.note(epoch, strategy, dataset, own=own)
    if own:
        _end_alike(strategy, dataset)
        epoch.data_adapter = _Unnumbered(epoch.data_adapter)
        epoch._num_batches = None
        return strategy.experimental_distribute_dataset(dataset)
    other = "the order of the examples" if rows_in_order else pipelines.not_by_files(dataset)
    other = other or ("fewer files than workers" if pipelines.few_files(dataset, workers_of(strategy)) else "")
    policy = dataset.options().experimental_distribute.auto_shard_policy
    other = other or ("AutoShardPolicy.DATA" if policy == _Policy.DATA else "")
    if (other or not pipelines.reads_files(dataset)) and policy != _Policy.HINT:
        dataset = _by_batches(strategy, dataset, other)
        _first[epoch] = _First(draws=pipelines.draws(dataset))
        dataset = pipelines.noting_first(dataset, _first[epoch].noted.append)
    return strategy.experimental_distribute_dataset(dataset)


def compare_first(epoch: Any) -> None:
    """Compares the first batch, which all workers have read. All of them have to call it, after each execution.

    Raises:
        UsageError: they have read different ones; on all workers.
    """
    first = _first.pop(epoch, None)
    if first is None:
        return
    strategy = epoch._distribute_strategy
    mine = first.noted[0] if first.noted else ()
    if len(set(of_each_replica(strategy, _total(mine)))) == 1:
        return
    longest = max(of_each_replica(strategy, len(mine)))
    each = [of_each_replica(strategy, one) for one in [*mine, *[0] * (longest - len(mine))]]
    same = any(len(set(values)) == 1 for values in each if any(values))
    if not same and not first.draws:
        raise UsageError(
            f"{place_of_call()}the {workers_of(strategy)} workers have read different examples in their first batch; "
            f"{_SHARED}, in the same order (a seed in each shuffle); {_OFF}"
        )
    if strategy.extended.should_checkpoint and not (same and first.draws):
        log.warning(
            "the workers have read different values in their first batch: if that is not chance, such as a random "
            f"change of the examples, {_SHARED}; {_OFF}"
        )


def _shares(strategy: Any, dataset: Any) -> bool:
    """Whether each worker has its own data, as the user says; otherwise all have the same."""
    parts, workers = pipelines.parts_of(dataset), workers_of(strategy)
    policy = dataset.options().experimental_distribute.auto_shard_policy
    each = of_each_replica(
        strategy, _total([int(policy), *(digest for _, digest in parts)]) << 1 | (policy == _Policy.OFF)
    )
    same = len(set(each)) == 1
    policies = {one & 1 for one in each}
    if policies == {1}:
        if same and not pipelines.may_differ(dataset) and strategy.extended.should_checkpoint:
            log.warning(
                f"AutoShardPolicy.OFF of the data, and the {workers} workers have the same: each example counts "
                f"{workers} times; leave the policy out, or give each worker its part"
            )
        return True
    if pipelines.of_service(dataset):
        raise UsageError(
            f"{place_of_call()}a service of tf.data gives each worker examples in an order of its own, which cannot be "
            "divided again; give distribute() a job_name, by which the workers share them"
        )
    if not same:
        raise UsageError(
            f"{place_of_call()}the {workers} workers have different data (seen in {_difference(strategy, parts)}); "
            f"{_SHARED}; {_OFF}"
        )
    return False


def _difference(strategy: Any, parts: Sequence[tuple[str, int]]) -> str:
    """The name of the step of a pipeline that differs, next to its sources."""
    longest = max(of_each_replica(strategy, len(parts)))
    found = "AutoShardPolicy"
    for place in range(longest):
        name, digest = parts[place] if place < len(parts) else ("", 0)
        if len(set(of_each_replica(strategy, digest))) > 1:
            found = name or found
    return found


def _by_batches(strategy: Any, dataset: Any, other: str) -> Any:
    """A dataset that is not divided by files."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = _Policy.DATA
    options.deterministic = True
    if step := pipelines.in_any_order(dataset):
        raise UsageError(
            f"{place_of_call()}deterministic=False of {step}: each worker reads the examples in "
            "an order of its own, and would train others than its part; leave it out "
            "(of tensorflow_datasets: shuffle_files=True without ReadConfig(shuffle_seed=...))"
        )
    if strategy.extended.should_checkpoint and pipelines.reads_files(dataset):
        log.info(f"the data are divided by batches and not by files, because of {other}: each worker reads all files")
    return dataset.with_options(options)


def _end_alike(strategy: Any, dataset: Any) -> None:
    """Makes sure that each worker's own data end, or none's."""
    if len(set(of_each_replica(strategy, int(dataset.cardinality() == tf.data.INFINITE_CARDINALITY)))) > 1:
        raise UsageError(
            f"{place_of_call()}the data of one worker end, and those of another do not; let all repeat, or none"
        )


@contextmanager
def _shuffled_alike(adapter: Any, strategy: Any) -> Iterator[None]:
    """Lets Keras shuffle arrays alike on all workers, where chance is not the same on all of them."""
    if not isinstance(adapter, ArrayDataAdapter) or not adapter._shuffle:
        yield
        return
    mine = private(context, "global_seed", library="tensorflow")()
    seeds = of_each_replica(strategy, 0 if mine is None else (mine & 0xFFFFFFFF) + 1)
    if len(set(seeds)) == 1 and seeds[0]:
        yield
        return
    seed = of_each_replica(strategy, secrets.randbelow(2**31))[0]
    shuffle = tf.random.shuffle
    tf.random.shuffle = functools.partial(shuffle, seed=seed)
    try:
        yield
    finally:
        tf.random.shuffle = shuffle


def _total(digests: Sequence[int]) -> int:
    return zlib.crc32(repr(list(digests)).encode())


class _Unnumbered:
    """Data of Keras whose number of batches shows at the end of an epoch: another worker may have more."""

    num_batches = None

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.ends_known = adapter.num_batches is not None
        """Whether one device would know where they end."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)
