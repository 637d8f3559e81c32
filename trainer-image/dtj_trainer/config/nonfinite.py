"""What happens when a loss is NaN or infinite: the choice of the user, and the messages. Must not import TensorFlow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dtj_trainer.config import options
from dtj_trainer.config.cluster import CHIEF, WORKER, Cluster
from dtj_trainer.config.options import ParsedArgs
from dtj_trainer.errors import NotFinite, UsageError

FAIL, ROLLBACK, SKIP = options.NAN_POLICIES


@dataclass(frozen=True, kw_only=True)
class NanPolicy:
    """What was asked for with `--on-nan`."""

    action: str
    limit: int
    """Rollbacks, or updates that are skipped, in one run of this process."""


class NotFiniteStep(NotFinite):
    """See `NotFinite`."""

    def __init__(self, message: str, *, step: int, where: str, is_exact: bool) -> None:
        super().__init__(message)
        self.step = step
        self.is_exact = is_exact
        """Whether it is not finite since that step, and not since one before it that nobody looked at."""
        self.where = where
        """What is not finite, and at which step."""


def nan_policy(given: ParsedArgs, *, strategy: str, checkpoints: bool, script: bool) -> NanPolicy:
    """Reads the options.

    Args:
        script: whether a script, or a session in one, takes the steps.
        checkpoints: whether the job has a checkpoint directory.

    Raises:
        UsageError: the strategy cannot do it, or there is no checkpoint.
    """
    action = given.value(options.ON_NAN)
    source = given.source(options.ON_NAN)
    if action != FAIL and script:
        raise UsageError(f"{source}: --script and sessions can only stop; use --on-nan={FAIL}")
    if action != FAIL and strategy == "ParameterServer":
        raise UsageError(f"{source}: strategy {strategy} can only stop; use --on-nan={FAIL}")
    if action == ROLLBACK and not checkpoints:
        raise UsageError(f"{source}: there is no checkpoint to go back to; give --checkpoint-dir")
    if action == FAIL and (unused := given.source(options.ON_NAN_LIMIT)):
        raise UsageError(f"{unused}: the training stops at once; give --on-nan={ROLLBACK} or --on-nan={SKIP}")
    return NanPolicy(action=action, limit=given.value(options.ON_NAN_LIMIT))


def workers_of(cluster: Cluster, replicas: Iterable[int], *, total: int) -> Sequence[str]:
    """The names of the tasks that these replicas belong to; of a job of one process, none.

    Args:
        replicas: by their number in the strategy.
        total: how many replicas the strategy has.
    """
    tasks = sorted((t for t in cluster.addresses if t.role in (CHIEF, WORKER)), key=lambda t: (t.role, t.index))
    if len(tasks) < 2:
        return ()
    found = sorted({replica * len(tasks) // total for replica in replicas})
    return [str(tasks[index]) for index in found]


def on_which(workers: Sequence[str]) -> str:
    """` on worker-1`, or nothing where there is only one process."""
    return f" on {', '.join(workers)}" if workers else ""


def last_words(where: str, checkpoint: str | None, policy: NanPolicy) -> str:
    """The line that such a training ends with: what was not finite at which step, what is left, and what to do."""
    stays = f"the last finite checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint"
    if policy.action == FAIL:
        remedy = "lower the learning rate, or look at the examples of that step; see --on-nan"
    else:
        remedy = f"--on-nan={policy.action} has gone on {policy.limit} times (--on-nan-limit)"
    return f"{where}; {stays}; {remedy}"
