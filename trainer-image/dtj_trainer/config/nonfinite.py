"""What happens when a loss is NaN or infinite: the choice of the user, and the messages. Must not import TensorFlow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dtj_trainer.config.cluster import CHIEF, WORKER, Cluster
from dtj_trainer.config.options import Options, one_of, option, whole
from dtj_trainer.errors import NotFinite, UsageError

FAIL, ROLLBACK, SKIP = "fail", "rollback", "skip"


@dataclass(frozen=True, kw_only=True)
class NanPolicy(Options):
    """What is done about a loss that is not finite."""

    title: ClassVar[str] = "how to run"

    action: str = option(
        "--on-nan", variable="DTJ_ON_NAN", parse=one_of((FAIL, ROLLBACK, SKIP), "action"), default=FAIL,
        metavar="ACTION",
        help="when the loss is NaN or infinite: fail; rollback to the last checkpoint and leave out the batch; or skip "
        "updates whose loss or gradients are not finite",
    )  # fmt: skip
    limit: int = option(
        "--on-nan-limit", parse=whole(1), default=10,
        help="--on-nan=rollback and skip: fail after this many in one run of this process",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.action == FAIL and (unused := self.given.get("limit")):
            raise UsageError(f"{unused}: the training stops at once; give --on-nan={ROLLBACK} or --on-nan={SKIP}")

    def check(self, *, strategy: str, checkpoints: bool, script: bool) -> None:
        """That it can be done.

        Args:
            checkpoints: whether the job has a checkpoint directory.
            script: whether a script, or a session in one, takes the steps.

        Raises:
            UsageError: the strategy cannot do it, or there is no checkpoint.
        """
        if self.action == FAIL:
            return
        source = self.given["action"]
        if script:
            raise UsageError(f"{source}: --script and sessions can only stop; use --on-nan={FAIL}")
        if strategy == "ParameterServer":
            raise UsageError(f"{source}: strategy {strategy} can only stop; use --on-nan={FAIL}")
        if self.action == ROLLBACK and not checkpoints:
            raise UsageError(f"{source}: there is no checkpoint to go back to; give --checkpoint-dir")


class NotFiniteStep(NotFinite):
    """See `NotFinite`."""

    def __init__(self, message: str, *, step: int, where: str, is_exact: bool) -> None:
        super().__init__(message)
        self.step = step
        self.is_exact = is_exact
        """Whether it is not finite since that step, and not since one before it that nobody looked at."""
        self.where = where
        """What is not finite, and at which step."""


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
