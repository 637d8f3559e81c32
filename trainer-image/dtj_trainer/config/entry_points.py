"""The names of a user's functions on the command line, and whether their modules are there. Imports none of them."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dtj_trainer.config.options import Options, option, some_text
from dtj_trainer.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Name:
    """A function of a user's, as `--flag=module:function`."""

    flag: str
    module: str
    function: str

    def __str__(self) -> str:
        return f"{self.flag}={self.module}:{self.function}"


def _name(flag: str) -> Callable[[str], Name]:
    def parse(text: str) -> Name:
        module, _, function = text.partition(":")
        if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            raise ValueError("give package.module:function")
        return Name(flag=flag, module=module, function=function)

    return parse


@dataclass(frozen=True, kw_only=True)
class UserCode(Options):
    """What the user brings. Nothing: a task and a data set that ship."""

    title: ClassVar[str] = "your own model and data"

    model: Name | None = option(
        "--model", parse=_name("--model"), default=None, metavar="MODULE:BUILD",
        help="your own model instead of --task: a function without arguments that returns a Keras model",
    )  # fmt: skip
    data: Name | None = option(
        "--data", parse=_name("--data"), default=None, metavar="MODULE:DATASET",
        help="your own data instead of --dataset: a function without arguments that returns {'training': …, "
        "'held_out': …}, two tf.data.Datasets of single examples (inputs, labels)",
    )  # fmt: skip
    loss: str | None = option(
        "--loss", parse=some_text, default=None, metavar="NAME",
        help="the loss for --model, by its name in Keras (default: the loss with which the model is compiled)",
    )  # fmt: skip
    shuffle: bool = option(
        "--no-shuffle", parse=lambda _: False, default=True, metavar=None,
        help="keep the order of the examples of --data in each epoch",
    )  # fmt: skip
    actions: Name | None = option(
        "--actions", parse=_name("--actions"), default=None, metavar="M:F",
        help="your function that returns a list of actions to call every N steps, as package.module:function",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.loss and not self.model:
            raise UsageError(f"{self.given['loss']}: a task has its own loss; give --model, or leave it out")
        if not self.shuffle and not self.data:
            raise UsageError("--no-shuffle: only --data comes in an order of its own; leave it out")

    def check_options(self, *, task: str | None, dataset: str | None, files: str | None, strategy: str) -> None:
        """That what the user brings and what the trainer has go together.

        Args:
            task: `--task` as it was given; None: it was not.
            dataset: `--dataset`, likewise.
            files: `--data-dir`, likewise.

        Raises:
            UsageError: they exclude each other, or something is missing.
        """
        for one, other in (
            (self.given.get("model"), task), (self.given.get("data"), dataset), (self.given.get("data"), files),
            (files, dataset),
        ):  # fmt: skip
            if one and other:
                raise UsageError(f"{one} and {other}: give one of the two")
        if self.model and not (self.data or files or dataset):
            raise UsageError(f"{self.model}: nothing to learn from; give --data, --data-dir, or a --dataset that ships")
        if self.model and files and not self.loss:
            raise UsageError(
                f"{files} and {self.model}: give --loss as well, which says whether labels are classes or numbers"
            )
        if self.actions and strategy == "Pipeline":
            raise UsageError(
                f"{self.actions}: strategy Pipeline has no whole model to pass to an action; use another strategy, or "
                "leave it out"
            )


def check(user_code: UserCode) -> None:
    """Makes sure that the modules can be found, in the working directory too, before anything waits for other tasks.

    Raises:
        UsageError: there is no such module.
    """
    for name in (user_code.model, user_code.data, user_code.actions):
        if name:
            # `python -m` puts it there itself, an installed program does not.
            if "" not in sys.path and os.getcwd() not in sys.path:
                sys.path.insert(0, os.getcwd())
            _find(name)


def _find(name: Name) -> None:
    path: Sequence[str] | None = None
    parts = name.module.split(".")
    for depth in range(1, len(parts) + 1):
        full = ".".join(parts[:depth])
        # Without importing the packages on the way, which may want TensorFlow.
        finders = (finder.find_spec(full, path) for finder in sys.meta_path)
        found = next((spec for spec in finders if spec), None)
        if found is None:
            raise UsageError(
                f"{name}: there is no module {full}; put it into the working directory ({os.getcwd()}) or name its "
                "folder in PYTHONPATH",
                restart_may_help=True,
            )
        path = found.submodule_search_locations or []
