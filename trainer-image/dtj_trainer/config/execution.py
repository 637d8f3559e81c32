"""What is trained, how its steps are taken, and what the task says meanwhile, by the command line.

Must not import TensorFlow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from dtj_launch import communication, logs
from dtj_launch.logs import LogOptions
from dtj_trainer.config.nonfinite import FAIL, LIMIT, NAN_POLICIES
from dtj_trainer.config.options import Options, names, one_of, option, positive, whole
from dtj_trainer.errors import UsageError

STRATEGIES = (
    "OneDevice", "Mirrored", "CentralStorage", "MultiWorkerMirrored", "ParameterServer", "TPU", "Pipeline",
)  # fmt: skip
DEFAULT_BATCH_SIZE = 64
ROWS, IMAGES, TEXTS = "rows of numbers", "images", "texts"


@dataclass(frozen=True, kw_only=True)
class TaskEntry:
    """A kind of model with its loss and its metrics, and the data sets that it can learn from."""

    inputs: str
    """What it learns from: ROWS, IMAGES or TEXTS."""
    datasets: tuple[str, ...]
    """Names in DATASETS; the first is the one where none is given."""
    learning_rates: Mapping[str, float]
    """Name of an optimizer -> its rate where none is given."""
    predicts_numbers: bool = False
    """Whether labels are numbers to be predicted, and not classes."""


DATASETS = ("digits", "reviews", "diabetes", "breast-cancer")
"""Of `dtj_trainer.datasets.LOAD`."""

TASKS: Mapping[str, TaskEntry] = MappingProxyType(
    {
        "image-classification": TaskEntry(
            inputs=IMAGES,
            datasets=("digits",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.05}),
        ),
        "text-classification": TaskEntry(
            inputs=TEXTS,
            datasets=("reviews",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.5}),
        ),
        "tabular-regression": TaskEntry(
            inputs=ROWS,
            datasets=("diabetes",),
            # The loss is in the square of the label's unit, and so are its gradients: plain SGD has to make up for it.
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 1e-6}),
            predicts_numbers=True,
        ),
        "tabular-classification": TaskEntry(
            inputs=ROWS,
            datasets=("breast-cancer",),
            learning_rates=MappingProxyType({"adam": 0.003, "sgd": 0.05}),
        ),
    }
)
"""Of `dtj_trainer.tasks.shipped.FIT`."""


_SEEDS = 2**32
"""NumPy, and with it Keras, takes no larger seed."""


def _seed(text: str) -> int:
    """A whole number from 0 on; of one that is too large for a seed, the remainder."""
    return whole(0)(text) % _SEEDS


@dataclass(frozen=True, kw_only=True)
class Training(Options):
    """What is trained, and for how long."""

    title: ClassVar[str] = "model and optimizer"

    task: str = option(
        "--task", parse=one_of(tuple(TASKS), "task"), default="image-classification", metavar="NAME",
        help=f"the task: {', '.join(TASKS)}",
    )  # fmt: skip
    given_dataset: str | None = option(
        "--dataset", parse=str, default=None, metavar="NAME",
        help="the data set (default: the first one of the task): "
        + "; ".join(f"{name}: {', '.join(task.datasets)}" for name, task in TASKS.items()),
    )  # fmt: skip
    epochs: int = option(
        "--epochs", parse=whole(1), default=5, help="number of passes over the training examples"
    )  # fmt: skip
    seed: int = option(
        "--seed", parse=_seed, default=0, for_scripts=True,
        help="seed of the initial weights and of the order of the data",
    )  # fmt: skip

    @property
    def dataset(self) -> str:
        """One of those that are shipped; not read where `data.where` is set."""
        return self.given_dataset or TASKS[self.task].datasets[0]


@dataclass(frozen=True, kw_only=True)
class BatchSize(Options):
    """Examples in one step: of the whole job, or of each replica."""

    title: ClassVar[str] = "model and optimizer"

    whole_job: int | None = option(
        "--batch-size", parse=whole(1), default=None,
        help=f"global batch: examples per step over all replicas (default: {DEFAULT_BATCH_SIZE})",
    )  # fmt: skip
    each_replica: int | None = option(
        "--per-replica-batch-size", parse=whole(1), default=None,
        help="examples per step and replica, instead of --batch-size",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.whole_job and self.each_replica:
            raise UsageError(f"{' and '.join(self.given.values())}: give one of the two")

    @property
    def examples(self) -> int:
        """Of the whole job, or of each replica."""
        return self.each_replica or self.whole_job or DEFAULT_BATCH_SIZE

    @property
    def per_replica(self) -> bool:
        """Whether it is that of each replica."""
        return self.each_replica is not None

    def over(self, replicas: int) -> int:
        """The global batch size of this many replicas.

        Raises:
            UsageError: a global batch with less than one example for each replica.
        """
        if self.per_replica:
            return self.examples * replicas
        if self.examples < replicas:
            raise UsageError(
                f"--batch-size={self.examples}: less than one example for each of {replicas} replicas; "
                f"give at least {replicas}"
            )
        return self.examples


@dataclass(frozen=True, kw_only=True)
class Execution(Options):
    """How the steps are taken."""

    title: ClassVar[str] = "how to run"

    strategy: str = option(
        "--strategy", variable="DTJ_STRATEGY", parse=one_of(STRATEGIES, "strategy"), default=STRATEGIES[0],
        metavar="NAME", help=", ".join(STRATEGIES),
    )  # fmt: skip
    communication: str = option(
        "--communication", variable=communication.VARIABLE, parse=one_of(communication.WAYS, "way"),
        default=communication.AUTO, metavar="WAY", for_scripts=True,
        help="how GPUs add up gradients (MultiWorkerMirrored, Mirrored): nccl; ring, which does without NCCL; or auto, "
        "which is nccl if all tasks have GPUs",
    )  # fmt: skip
    logical_cpus: int = option(
        "--logical-cpus", parse=whole(1), default=1, for_scripts=True,
        help="number of CPU devices for Mirrored and CentralStorage if there is no GPU",
    )  # fmt: skip
    steps_per_call: int = option(
        "--steps-per-call", parse=whole(1), default=20,
        help="largest number of steps in one call of TensorFlow; fewer if a step is slow",
    )  # fmt: skip
    on_nan: str = option(
        "--on-nan", variable="DTJ_ON_NAN", parse=one_of(NAN_POLICIES, "action"), default=FAIL, metavar="ACTION",
        help="when the loss is NaN or infinite: fail; or skip updates whose loss or gradients are not finite, and fail "
        f"after {LIMIT} of them",
    )  # fmt: skip
    compare_steps: int | None = option(
        "--compare-replicas-every", parse=whole(0), default=None, metavar="STEPS", for_scripts=True,
        help="compare the bits of weights and optimizer on all replicas after every STEPS steps, besides before each "
        "checkpoint (MultiWorkerMirrored, Mirrored); 0: never",
    )  # fmt: skip
    unchecked: tuple[str, ...] = option(
        "--unchecked", variable="DTJ_UNCHECKED", parse=names, default=(), metavar="NAMES", for_scripts=True,
        help="parts of a model that are trained although nothing shows how replicas divide them: a layer, train_step, "
        "or what else the line names that refuses it; several with commas",
    )  # fmt: skip
    start_seconds: float = option(
        "--start-timeout", parse=positive, default=300.0, metavar="S", for_scripts=True,
        help="seconds to wait for the other tasks; then exit 75",
    )  # fmt: skip
    stall_seconds: float | None = option(
        "--stall-timeout", variable="DTJ_STALL_TIMEOUT", parse=positive, default=None, metavar="S",
        help="seconds without a finished step, after which the late task exits with 1 and the other tasks with 75 "
        "(default: 1800; 300 under ParameterServer and Pipeline, and with a tf.data service; in a script, at least ten "
        "times its longest step)",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reporting(Options):
    """What a task says while it works."""

    title: ClassVar[str] = "progress and log"

    progress_seconds: float = option(
        "--progress-every", parse=positive, default=2.0, metavar="S", for_scripts=True,
        help="seconds between two progress lines",
    )  # fmt: skip
    log_format: str = option(
        "--log-format", variable=logs.FORMAT_VARIABLE, parse=one_of(logs.FORMATS, "format"), default=logs.PLAIN,
        metavar="FORMAT",
        help="format of the log lines: plain, the message alone; text, with time, level and logger; json, an object a "
        "line",
    )  # fmt: skip
    log_level: str = option(
        "--log-level", variable=logs.LEVEL_VARIABLE, parse=one_of(logs.LEVELS, "level"), default="info",
        metavar="LEVEL", help=f"lowest level of log lines that are shown: {', '.join(logs.LEVELS)}",
    )  # fmt: skip

    @property
    def log(self) -> LogOptions:
        """How log lines are written."""
        return LogOptions(self.log_format, self.log_level)
