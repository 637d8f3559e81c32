"""How a job of strategy Pipeline is laid out: stages, replicas, micro-batches. Standard library only."""

from dataclasses import dataclass

from dtj_trainer.config import options
from dtj_trainer.config.cluster import CHIEF, PS, WORKER, Cluster, Task
from dtj_trainer.config.options import ParsedArgs
from dtj_trainer.errors import UsageError

PIPELINE = "Pipeline"
_OPTIONS = (options.MICRO_BATCHES, options.PIPELINE_REPLICAS, options.STAGES, options.BALANCE)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the workers of a pipeline are. The stages of one replica have workers that follow each other."""

    stages: int
    replicas: int
    micro_batches: int
    """Of each replica, a step."""
    first_layers: tuple[str, ...]
    """Names of the first layers of all stages but the first; empty where the stages are to be balanced."""
    by_cost: bool
    """Whether they are balanced by measured time; else by the number of parameters."""

    @property
    def shares(self) -> int:
        """Micro-batches of a step over all replicas."""
        return self.replicas * self.micro_batches

    def worker(self, *, replica: int, stage: int) -> Task:
        """The task that runs a stage."""
        return Task(WORKER, replica * self.stages + stage)

    def describe(self, *, replica: int, stage: int) -> str:
        """Such as `worker 1 (stage 1)`."""
        return f"{self.worker(replica=replica, stage=stage)} (stage {stage})"


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
    workers, replicas = here.count(WORKER), args.value(options.PIPELINE_REPLICAS)
    if workers % replicas:
        raise UsageError(
            f"{args.source(options.PIPELINE_REPLICAS)}: TF_CONFIG lists {workers} workers, which {replicas} replicas "
            "cannot share; give a divisor of the number of workers"
        )
    stages = workers // replicas
    if stages < 2:
        per = f" for each of {replicas} replicas" if replicas > 1 else ""
        raise UsageError(
            f"strategy {PIPELINE}: TF_CONFIG lists {workers} workers, which is {stages} stage(s){per}; "
            f"list at least {2 * replicas}"
        )
    first_layers = args.value(options.STAGES)
    if first_layers and len(first_layers) != stages - 1:
        raise UsageError(
            f"{args.source(options.STAGES)}: names {len(first_layers)} layer(s), but {stages} stages begin with "
            f"{stages - 1} besides the first; name the first layer of each later stage"
        )
    if first_layers and args.source(options.BALANCE):
        raise UsageError(
            f"{args.source(options.STAGES)} and {args.source(options.BALANCE)}: give one of the two, the layers or "
            "what to balance"
        )
    return Layout(
        stages=stages,
        replicas=replicas,
        micro_batches=args.value(options.MICRO_BATCHES),
        first_layers=first_layers,
        by_cost=args.value(options.BALANCE) == "cost",
    )


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
    if batch % layout.shares:
        least = -(-batch // layout.shares) * layout.shares
        over = f" on each of {layout.replicas} replicas" if layout.replicas > 1 else ""
        raise UsageError(
            f"{options.MICRO_BATCHES.flag}={layout.micro_batches}: the global batch of {batch} examples cannot be cut "
            f"into {layout.micro_batches} equal micro-batches{over}; use {options.BATCH_SIZE.flag}={least}, "
            f"or another number that {layout.shares} divides"
        )
