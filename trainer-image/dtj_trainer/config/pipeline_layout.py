"""How a job of strategy Pipeline is laid out: stages and micro-batches. Standard library only."""

from dataclasses import dataclass
from typing import ClassVar

from dtj_trainer.config.cluster import CHIEF, PS, WORKER, Cluster, Task
from dtj_trainer.config.options import Arguments, Options, names, option, options_of, whole
from dtj_trainer.errors import UsageError

PIPELINE = "Pipeline"


@dataclass(frozen=True, kw_only=True)
class Layout(Options):
    """What the workers of a pipeline are, each a stage."""

    title: ClassVar[str] = "how to cut a model (Pipeline)"

    stages: int
    micro_batches: int = option(
        "--micro-batches", parse=whole(1), default=4,
        help="Pipeline: number of equal parts of a batch that follow each other through the stages",
    )  # fmt: skip
    first_layers: tuple[str, ...] = option(
        "--stages", parse=names, default=(), metavar="LAYERS",
        help="Pipeline: first layer of each stage except the first, such as flatten,dense_1 (default: by parameters)",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.first_layers and len(self.first_layers) != self.stages - 1:
            raise UsageError(
                f"{self.given['first_layers']}: names {len(self.first_layers)} layer(s), but {self.stages} stages "
                f"begin with {self.stages - 1} besides the first; name the first layer of each later stage"
            )

    def worker(self, stage: int) -> Task:
        """The task that runs a stage."""
        return Task(WORKER, stage)

    def describe(self, stage: int) -> str:
        """Such as `worker 1 (stage 1)`."""
        return f"{self.worker(stage)} (stage {stage})"


def read(args: Arguments, strategy: str, here: Cluster) -> Layout | None:
    """The layout that options and TF_CONFIG give; None for another strategy.

    Raises:
        UsageError: they contradict each other.
    """
    if strategy != PIPELINE:
        if given := [args.sources[one.flag] for one in options_of(Layout).values() if one.flag in args.sources]:
            raise UsageError(f"{given[0]}: strategy {strategy} has no stages; leave it out, or use {PIPELINE}")
        return None
    stages = here.count(WORKER)
    if stages < 2:
        raise UsageError(f"strategy {PIPELINE}: TF_CONFIG lists {stages} worker, which is one stage; list at least 2")
    return Layout(**args.values(Layout), stages=stages)


def check_roles(here: Cluster) -> None:
    """That TF_CONFIG has the tasks of a pipeline: workers, with a chief to drive them or without.

    Raises:
        UsageError: it has none, or others.
    """
    if here.count(PS):
        raise UsageError(f"strategy {PIPELINE}: TF_CONFIG lists ps tasks; stages hold their own variables, remove ps")
    if not here.count(WORKER):
        also = " besides the chief" if here.count(CHIEF) else ""
        raise UsageError(f"strategy {PIPELINE}: TF_CONFIG lists no worker{also}; list one for each stage, at least 2")


def check_batch(layout: Layout, batch: int) -> None:
    """That the global batch can be cut into equal micro-batches.

    Raises:
        UsageError: it cannot.
    """
    if batch % layout.micro_batches:
        least = -(-batch // layout.micro_batches) * layout.micro_batches
        raise UsageError(
            f"--micro-batches={layout.micro_batches}: the global batch of {batch} examples cannot be cut "
            f"into {layout.micro_batches} equal micro-batches; use --batch-size={least}, "
            f"or another number that {layout.micro_batches} divides"
        )
