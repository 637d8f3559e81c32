"""What is evaluated while a model trains, and which step is kept, as the command line says it.

Must not import TensorFlow; `dtj_trainer.training.validations` computes the values.
"""

from dataclasses import dataclass

from dtj_trainer.config import options
from dtj_trainer.config.options import ParsedArgs
from dtj_trainer.config.validation_options import Interval, KeepBest
from dtj_trainer.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ValidationPolicy:
    """What was asked for."""

    every: Interval | None
    """None: nothing is evaluated before the end."""
    keep_best: KeepBest | None


def validation_policy(args: ParsedArgs, *, strategy: str, checkpoints: bool) -> ValidationPolicy:
    """Reads the options.

    Args:
        checkpoints: whether the job has a checkpoint directory.

    Raises:
        UsageError: the strategy cannot do it, or an option has no meaning next to the others.
    """
    every, keep_best = args.value(options.VALIDATE_EVERY), args.value(options.KEEP_BEST)
    source = args.source(options.VALIDATE_EVERY)
    if every and strategy in ("ParameterServer", "Pipeline"):
        raise UsageError(
            f"{source}: strategy {strategy} evaluates only at the end; leave it out, or add an evaluator to the job, "
            "which evaluates each checkpoint"
        )
    if keep_best and every is None:
        unused = args.source(options.KEEP_BEST)
        raise UsageError(f"{unused}: nothing validates during the training; give --validate-every")
    if keep_best and not checkpoints:
        raise UsageError(
            f"{args.source(options.KEEP_BEST)}: there is no directory for the best step; give --checkpoint-dir"
        )
    return ValidationPolicy(every=every, keep_best=keep_best)
