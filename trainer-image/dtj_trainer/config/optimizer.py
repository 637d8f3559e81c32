"""How a model learns: the optimizer, its rate and the rate's schedule, as the command line says it.

Must not import TensorFlow; `dtj_trainer.training.optimizers` makes the optimizer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from dtj_trainer.config.options import Options, one_of, option, positive

OPTIMIZERS = (
    "adam", "sgd", "adadelta", "adafactor", "adagrad", "adamax", "adamw", "ftrl", "lamb", "lion", "muon", "nadam",
    "rmsprop",
)  # fmt: skip
"""Keras' names, in lower case. tf_keras has neither lamb nor muon."""
CONSTANT, WARMED_UP = "constant", "warmup-cosine"


def _settings(text: str) -> Mapping[str, bool | int | float]:
    """`NAME=NUMBER,NAME=true`."""
    found: dict[str, bool | int | float] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name.isidentifier() or name in found:
            raise ValueError("give NAME=NUMBER, or NAME=true or NAME=false, each name once, with commas between them")
        found[name] = _number(name, value)
    return found


def _number(name: str, text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            if math.isfinite(float(text)):
                return kind(text)
        except ValueError:
            continue
    raise ValueError(f"{name}: give a finite number, true or false")


@dataclass(frozen=True, kw_only=True)
class Learning(Options):
    """What was asked for.

    Attributes:
        rates: name of an optimizer -> its rate where none is given; of those that are not there, Keras'.
    """

    title: ClassVar[str] = "model and optimizer"

    rates: Mapping[str, float]
    optimizer: str = option(
        "--optimizer", parse=one_of(OPTIMIZERS, "optimizer"), default="adam", metavar="NAME",
        help=f"an optimizer of Keras: {', '.join(OPTIMIZERS)}",
    )  # fmt: skip
    settings: Mapping[str, bool | int | float] = option(
        "--optimizer-options", parse=_settings, default=MappingProxyType({}), metavar="A=N,B=N",
        help="options of the optimizer, by their names in Keras, such as momentum=0.9,clipnorm=1.0,use_ema=true",
    )  # fmt: skip
    given_rate: float | None = option(
        "--learning-rate", parse=positive, default=None, metavar="RATE",
        help="highest learning rate of the optimizer (default: by task and optimizer)",
    )  # fmt: skip
    schedule: str = option(
        "--schedule", parse=one_of((CONSTANT, "cosine", "exponential", WARMED_UP), "schedule"), default=CONSTANT,
        metavar="NAME",
        help="schedule of the learning rate over all steps: constant, cosine (to 0), exponential (to a hundredth), "
        "warmup-cosine (from 0 up in a tenth of the steps, then to 0)",
    )  # fmt: skip

    @property
    def asked(self) -> bool:
        """Whether any of it was given; a model that was compiled keeps its own optimizer where not."""
        return bool(self.given)

    @property
    def rate(self) -> float | None:
        """The highest rate; None: Keras' own of this optimizer."""
        return self.given_rate or self.rates.get(self.optimizer)
