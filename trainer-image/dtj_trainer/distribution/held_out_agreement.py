"""All tasks end alike if one of them reads other held-out examples than before. Imports TensorFlow."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tensorflow as tf

from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.nonfinite import on_which, workers_of
from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution.strategies import of_each_replica
from dtj_trainer.errors import DataChanged

_VERDICT = "dtj-held-out"
_VERDICT_SECONDS = 10.0


def agree_on_held_out(config: Config, strategy: Any, *, differs: bool, error: Callable[[str], DataChanged]) -> None:
    """Raises in every task if they differ in one; all tasks of a collective have to call it.

    Args:
        differs: whether they do here.
        error: ` on worker 1`, or nothing in a job of one process -> what to raise.

    Raises:
        DataChanged: they differ.
    """
    if config.strategy != "MultiWorkerMirrored":
        if differs:
            raise error("")
        return
    votes = of_each_replica(strategy, int(differs))
    if found := [replica for replica, vote in enumerate(votes) if vote]:
        raise error(on_which(workers_of(config.cluster, found, total=len(votes))))


def leave_verdict(*, has_changed: bool) -> None:
    """What the leader found in the evaluation at the end, for the others; to be called before `exit_barrier`."""
    compat.leave_word(_VERDICT, "changed" if has_changed else "same")


def verdict() -> bool:
    """Whether the leader found that the held-out examples have changed; after `exit_barrier`, in another task."""
    with suppress(tf.errors.OpError):  # the leader has gone, and says itself why
        return compat.read_word(_VERDICT, seconds=_VERDICT_SECONDS) == "changed"
    return False
