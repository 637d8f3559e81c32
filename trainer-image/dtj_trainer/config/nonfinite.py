"""What happens when a loss is NaN or infinite: the choice of the user, and the messages. Must not import TensorFlow."""

from collections.abc import Iterable, Sequence

from dtj_trainer.config.cluster import Cluster
from dtj_trainer.errors import UsageError

FAIL, SKIP = NAN_POLICIES = "fail", "skip"
LIMIT = 10
"""Updates that are skipped in one run of this process."""


def check_skip(source: str, *, strategy: str, script: bool) -> None:
    """That an update can be skipped.

    Args:
        source: what asks for it.
        script: whether a script, or a session in one, takes the steps.

    Raises:
        UsageError: it cannot.
    """
    if script:
        raise UsageError(f"{source}: --script and sessions can only stop; use --on-nan={FAIL}")
    if strategy == "ParameterServer":
        raise UsageError(f"{source}: strategy {strategy} can only stop; use --on-nan={FAIL}")


def workers_of(cluster: Cluster, replicas: Iterable[int], *, total: int) -> Sequence[str]:
    """The names of the tasks that these replicas belong to; of a job of one process, none.

    Args:
        replicas: by their number in the strategy.
        total: how many replicas the strategy has.
    """
    tasks = cluster.trainers
    if len(tasks) < 2:
        return ()
    found = sorted({replica * len(tasks) // total for replica in replicas})
    return [str(tasks[index]) for index in found]


def on_which(workers: Sequence[str]) -> str:
    """` on worker-1`, or nothing where there is only one process."""
    return f" on {', '.join(workers)}" if workers else ""


def last_words(where: str, checkpoint: str | None, action: str) -> str:
    """The line that such a training ends with: what was not finite at which step, what is left, and what to do."""
    stays = f"the last finite checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint"
    if action == FAIL:
        remedy = "lower the learning rate, or look at the examples of that step; see --on-nan"
    else:
        remedy = f"--on-nan={action} has gone on {LIMIT} times, which is the limit"
    return f"{where}; {stays}; {remedy}"
