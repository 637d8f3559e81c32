"""How a job of strategy Pipeline is laid out: stages and micro-batches. Standard library only."""

from dataclasses import dataclass

from dtj_trainer.config import options
from dtj_trainer.config.cluster import CHIEF, PS, WORKER, Cluster, Task
from dtj_trainer.config.options import ParsedArgs
from dtj_trainer.errors import UsageError

PIPELINE = "Pipeline"
_OPTIONS = (options.MICRO_BATCHES, options.STAGES)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the workers of a pipeline are, each a stage."""

    stages: int
    micro_batches: int
    """Of a step."""
    first_layers: tuple[str, ...]
    """Names of the first layers of all stages but the first; empty: stages have about as many parameters."""

    def worker(self, stage: int) -> Task:
        """The task that runs a stage."""
        return Task(WORKER, stage)

    def describe(self, stage: int) -> str:
        """Such as `worker 1 (stage 1)`."""
        return f"{self.worker(stage)} (stage {stage})"


def read(args: ParsedArgs, strategy: str, here: Cluster) -> Layout | None:
    """The layout that options and TF_CONFIG give; None for another strategy.

    Raises:
        UsageError: they contradict each other.
    """
    if strategy != PIPELINE:
        for option in _OPTIONS:
            if source := args.source(option):
                raise UsageError(f"{source}: strategy {strategy} has no stages; leave it out, or use {PIPELINE}")
        return None
    stages = here.count(WORKER)
    if stages < 2:
        raise UsageError(f"strategy {PIPELINE}: TF_CONFIG lists {stages} worker, which is one stage; list at least 2")
    first_layers = args.value(options.STAGES)
    if first_layers and len(first_layers) != stages - 1:
        raise UsageError(
            f"{args.source(options.STAGES)}: names {len(first_layers)} layer(s), but {stages} stages begin with "
            f"{stages - 1} besides the first; name the first layer of each later stage"
        )
    return Layout(stages=stages, micro_batches=args.value(options.MICRO_BATCHES), first_layers=first_layers)


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
            f"{options.MICRO_BATCHES.flag}={layout.micro_batches}: the global batch of {batch} examples cannot be cut "
            f"into {layout.micro_batches} equal micro-batches; use {options.BATCH_SIZE.flag}={least}, "
            f"or another number that {layout.micro_batches} divides"
        )
