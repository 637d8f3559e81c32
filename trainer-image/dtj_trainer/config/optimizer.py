"""How a model learns: the optimizer, its rate and the rate's schedule, as the command line says it.

Must not import TensorFlow; `dtj_trainer.training.optimizers` makes the optimizer.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dtj_trainer.config import options
from dtj_trainer.config.options import Option, ParsedArgs
from dtj_trainer.errors import UsageError

WARMED_UP = "warmup-cosine"


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What was asked for.

    Attributes:
        asked: whether any of it was given; a model that was compiled keeps its own optimizer where not.
        settings: more arguments of the optimizer, by Keras' names.
        rate: None: Keras' own of this optimizer.
        warmup_steps: None: a tenth of the decay.
        decay_steps: None: all steps of the run.
        base_batch: the global batch that `rate` is meant for; None: whatever the batch is.
    """

    asked: bool
    optimizer: str
    settings: Mapping[str, object]
    rate: float | None
    schedule: str
    warmup_steps: int | None
    decay_steps: int | None
    base_batch: int | None


def learning(args: ParsedArgs, rates: Mapping[str, float]) -> Learning:
    """Reads the options.

    Args:
        rates: name of an optimizer -> its rate where none is given; of those that are not there, Keras'.

    Raises:
        UsageError: an option that has no meaning next to the others.
    """
    optimizer, schedule = args.value(options.OPTIMIZER), args.value(options.SCHEDULE)
    if schedule != WARMED_UP:
        _refuse(args, options.WARMUP_STEPS, f"schedule {schedule} does not warm up; give --schedule={WARMED_UP}")
    if schedule == "constant":
        _refuse(args, options.DECAY_STEPS, "schedule constant does not decay; give another --schedule")
    return Learning(
        asked=any(args.source(option) for option in options.LEARNING),
        optimizer=optimizer,
        settings=args.value(options.OPTIMIZER_OPTIONS),
        rate=args.value(options.LEARNING_RATE) or rates.get(optimizer),
        schedule=schedule,
        warmup_steps=args.value(options.WARMUP_STEPS),
        decay_steps=args.value(options.DECAY_STEPS),
        base_batch=args.value(options.SCALE_LEARNING_RATE),
    )


def _refuse(args: ParsedArgs, option: Option[object], why: str) -> None:
    if source := args.source(option):
        raise UsageError(f"{source}: {why}")
