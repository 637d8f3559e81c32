"""Whether all replicas hold the same bits: one that is flipped goes into each checkpoint. Imports TensorFlow."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.config.nonfinite import on_which, workers_of
from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution.agreement import numbers_of_each_replica
from dtj_trainer.errors import ReplicasDiffer

log = logging.getLogger(__name__)

_STRATEGIES = ("Mirrored", "MultiWorkerMirrored")


class ComparedReplicas:
    """The variables of a training of which each replica has a copy that it updates by itself, as all others do."""

    def __init__(self, config: Config, strategy: Any, variables: Iterable[tuple[str, Any]]) -> None:
        """Args:
        variables: tf.Variables with their names. Those that differ by design, or are on one device, are left out.
        """
        self._cluster = config.cluster
        self._strategy = strategy
        several = config.strategy in _STRATEGIES and strategy.num_replicas_in_sync > 1
        self._variables = [each for each in variables if _is_alike(each[1])] if several else []
        self._compares = bool(self._variables) and config.compare_steps != 0
        # A trace within each replica could take the copy of the first one for that of another.
        traced = tf.function(self._of_all_variables, autograph=False)
        self._look = traced if config.looks_often else self._of_all_variables
        self.begins = self._compares
        """Whether nothing was compared yet: the first step shows whether replicas can be compared."""

    def differing(self, step: int) -> ReplicasDiffer | None:
        """How the training ends after this step because replicas differ; None if they do not.

        All tasks have to call it together, and find the same. The first comparison of a run raises no alarm: if it
        finds a difference, it says so, and there is no other one.
        """
        if not self._compares:
            return None
        first, self.begins = self.begins, False
        if len(set(self._look().numpy().tolist())) == 1:
            return None
        found: list[list[int]] = numbers_of_each_replica(self._strategy, self._fingerprints).numpy().tolist()
        place = next((place for place, numbers in enumerate(found) if len(set(numbers)) > 1), None)
        if place is None:  # what read it in vain reads it well now
            return None
        name, odd = self._variables[place][0], odd_ones(found[place])
        if first:
            self._compares = False
            if self._cluster.leads:
                log.warning(
                    f"replicas differ in {name} after step {step}, the first that this run compares: processors that "
                    "round differently, or a variable that differs on purpose; replicas are compared no more"
                )
            return None
        return self._ended(name, odd, step)

    def _ended(self, variable: str, odd: Sequence[int], step: int) -> ReplicasDiffer:
        total = self._strategy.num_replicas_in_sync
        workers = workers_of(self._cluster, odd, total=total)
        which = f"replica {odd[0]}" if len(odd) == 1 else f"replicas {', '.join(map(str, odd))}"
        one = "differs from most others" if len(odd) == 1 else "differ from most others"
        how = one if len(odd) < total else "differ, and no majority shows which one is wrong,"
        return ReplicasDiffer(
            f"{which}{on_which(workers)} {how} in {variable} by step {step}: memory or a processor may be faulty; "
            "or, if they are meant to differ, use --compare-replicas-every=0",
            replicas=odd, step=step, variable=variable,
            workers=[str(worker).replace(" ", "-") for worker in workers or (self._cluster.task,)],
        )  # fmt: skip

    def _fingerprints(self) -> Any:
        """A number for each variable, of the copy of the replica that calls it."""
        return tf.concat([_fingerprint(tf.convert_to_tensor(one)) for _, one in self._variables], axis=0)

    def _of_all_variables(self) -> Any:
        """One number of each replica: so little is summed where they do not differ."""
        return numbers_of_each_replica(self._strategy, lambda: _fingerprint(self._fingerprints()))[0]


def odd_ones(numbers: Sequence[int]) -> list[int]:
    """The replicas that do not have the number of most of them; all of them, if none is that of more than half."""
    ((common, count),) = Counter(numbers).most_common(1)
    return [place for place, number in enumerate(numbers) if number != common or 2 * count <= len(numbers)]


def _is_alike(variable: Any) -> bool:
    """Whether replicas hold a variable each, and the same in it."""
    return (
        isinstance(variable, tf.distribute.DistributedValues)
        and variable.synchronization is not tf.VariableSynchronization.ON_READ
        and bool(variable.shape.num_elements())
    )


def _fingerprint(tensor: Any) -> Any:
    """Farmhash64 of its bytes, as a tensor of one int64."""
    # The kernel is there for CPUs alone.
    with tf.device("CPU:0"):
        return tf.bitcast(tf.fingerprint(tf.reshape(tensor, [1, tensor.shape.num_elements()])), tf.int64)
