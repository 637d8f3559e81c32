"""What is evaluated while a model trains, and which step is kept, as the command line says it.

Must not import TensorFlow; `dtj_trainer.training.evaluation` computes the values.
"""

import math
import re
from dataclasses import dataclass
from typing import ClassVar, Self

from dtj_trainer.config.options import Options, option
from dtj_trainer.errors import UsageError

VALIDATION = "val_"
"""What the names of metrics of the held-out examples begin with, as in Keras."""
MIN, MAX = "min", "max"
_LARGER = (
    "acc", "accuracy", "auc", "precision", "recall", "f1", "fbeta", "f_score", "iou", "miou", "r2_score",
    "true_positives", "true_negatives", "sensitivity", "specificity", "similarity", "correlation",
)  # fmt: skip
_SMALLER = (
    "loss", "logloss", "error", "false_positives", "false_negatives", "crossentropy", "divergence", "kldivergence",
    "hinge", "poisson", "huber", "log_cosh", "logcosh", "mae", "mse", "rmse", "mape", "msle", "perplexity",
)  # fmt: skip
_BETWEEN_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Interval:
    """This many steps, or this many epochs."""

    count: int
    epochs: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """Of `500`, `epoch` or `2epochs`.

        Raises:
            ValueError: it is none of them.
        """
        for ending in ("epochs", "epoch"):
            if text.endswith(ending):
                number, epochs = text.removesuffix(ending) or "1", True
                break
        else:
            number, epochs = text, False
        if not (number.isascii() and number.isdecimal() and int(number)):
            raise ValueError("give a number of steps, such as 500, or of epochs, such as epoch or 2epochs")
        return cls(int(number), epochs)

    def steps(self, steps_per_epoch: int) -> int:
        """How many steps that is."""
        return self.count * steps_per_epoch if self.epochs else self.count


@dataclass(frozen=True, kw_only=True)
class KeepBest:
    """Which step is the best: the one with the smallest or the largest value of a metric."""

    metric: str
    mode: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Of `val_loss`, or of `METRIC:min` or `METRIC:max`.

        Raises:
            ValueError: the name does not begin with val_, or does not tell the direction.
        """
        metric, colon, mode = text.partition(":")
        if not metric.startswith(VALIDATION) or metric == VALIDATION:
            raise ValueError("give a metric of the held-out examples, such as val_loss or val_accuracy")
        mode = mode if colon else _direction(metric)
        if mode not in (MIN, MAX):
            raise ValueError(f"give {metric}:{MIN} if a small value is good, {metric}:{MAX} if a large one is")
        return cls(metric=metric, mode=mode)

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether a value is better than the best one so far, None if there is none. NaN never is."""
        if math.isnan(value):
            return False
        if than is None:
            return True
        return value < than if self.mode == MIN else value > than


def _direction(metric: str) -> str:
    """By whole words of the name; empty if they do not tell: an inaccuracy is no accuracy."""
    name = _BETWEEN_WORDS.sub("_", f"_{metric.removeprefix(VALIDATION)}_".lower())
    larger, smaller = (any(f"_{word}_" in name for word in words) for words in (_LARGER, _SMALLER))
    return "" if larger == smaller else MAX if larger else MIN


@dataclass(frozen=True, kw_only=True)
class ValidationPolicy(Options):
    """What was asked for."""

    title: ClassVar[str] = "how to validate"

    every: Interval | None = option(
        "--validate-every", parse=Interval.of, default=None, metavar="INTERVAL",
        help="evaluate the held-out examples on the workers during the training, and after the last step: each time "
        "after this number of steps, as in 500, or of epochs, as in epoch or 2epochs (default: only at the end)",
    )  # fmt: skip
    keep_best: KeepBest | None = option(
        "--keep-best", parse=KeepBest.of, default=None, metavar="METRIC",
        help="--validate-every: keep the checkpoint with the best value of this metric, such as val_loss, and export "
        "that; METRIC:min or METRIC:max where the name does not tell which is better",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.keep_best and self.every is None:
            raise UsageError(f"{self.given['keep_best']}: nothing validates during the training; give --validate-every")

    def check(self, *, strategy: str, checkpoints: bool) -> None:
        """That this strategy can do it.

        Args:
            checkpoints: whether the job has a checkpoint directory.

        Raises:
            UsageError: it cannot, or there is no place for the best step.
        """
        if self.every and strategy in ("ParameterServer", "Pipeline"):
            raise UsageError(
                f"{self.given['every']}: strategy {strategy} evaluates only at the end; leave it out, or add an "
                "evaluator to the job, which evaluates each checkpoint"
            )
        if self.keep_best and not checkpoints:
            raise UsageError(
                f"{self.given['keep_best']}: there is no directory for the best step; give --checkpoint-dir"
            )
