"""The names of a user's functions on the command line, and whether their modules are there. Imports none of them."""

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dtj_trainer.config import options
from dtj_trainer.config.options import Option, ParsedArgs
from dtj_trainer.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Name:
    """A function of a user's, as `--flag=module:function`."""

    flag: str
    module: str
    function: str

    def __str__(self) -> str:
        return f"{self.flag}={self.module}:{self.function}"


@dataclass(frozen=True, kw_only=True)
class UserCode:
    """What the user brings. Nothing: a task and a data set that ship."""

    model: Name | None
    data: Name | None
    loss: str | None
    class_weights: tuple[float, ...]
    """Of the classes 0, 1, ...; empty: all count the same."""
    shuffle: bool
    actions: Name | None


def parse_entry_points(args: ParsedArgs) -> UserCode:
    """Reads the options.

    Raises:
        UsageError: a name that is not `module:function`, or options that contradict each other.
    """
    user_code = UserCode(
        model=_name(args, options.MODEL),
        data=_name(args, options.DATA),
        loss=args.value(options.LOSS),
        class_weights=args.value(options.CLASS_WEIGHTS),
        shuffle=not args.value(options.NO_SHUFFLE),
        actions=_name(args, options.ACTIONS),
    )
    _exclude(args, options.MODEL, options.TASK)
    _exclude(args, options.DATA, options.DATASET)
    _exclude(args, options.DATA, options.DATA_DIR)
    if user_code.model and not any(map(args.source, (options.DATA, options.DATA_DIR, options.DATASET))):
        raise UsageError(
            f"{user_code.model}: nothing to learn from; give --data, --data-dir, or a --dataset that ships"
        )
    if user_code.model and args.source(options.DATA_DIR) and not user_code.loss:
        raise UsageError(
            f"{args.source(options.DATA_DIR)} and {user_code.model}: give --loss as well, which says whether "
            "labels are classes or numbers"
        )
    if user_code.loss and not user_code.model:
        raise UsageError(f"{args.source(options.LOSS)}: a task has its own loss; give --model, or leave it out")
    if user_code.class_weights and not user_code.model:
        raise UsageError(f"{args.source(options.CLASS_WEIGHTS)}: the tasks that ship have none; give --model as well")
    if not user_code.shuffle and not user_code.data:
        raise UsageError("--no-shuffle: only --data comes in an order of its own; leave it out")
    if user_code.actions and args.value(options.STRATEGY) == "Pipeline":
        raise UsageError(
            f"{user_code.actions}: strategy Pipeline has no whole model to pass to an action; use another strategy, or "
            "leave it out"
        )
    return user_code


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
    for depth, part in enumerate(parts, start=1):
        full = ".".join(parts[:depth])
        # Without importing the packages on the way, which may want TensorFlow.
        found = importlib.machinery.PathFinder.find_spec(part if path is None else full, path)
        if found is None:
            raise UsageError(
                f"{name}: there is no module {full}; put it into the working directory ({os.getcwd()}) or name its "
                "folder in PYTHONPATH"
            )
        path = found.submodule_search_locations or []


def _name(args: ParsedArgs, option: Option[str | None]) -> Name | None:
    text = args.value(option)
    if text is None:
        return None
    module, _, function = text.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"{args.source(option)}: give package.module:function")
    return Name(flag=option.flag, module=module, function=function)


def _exclude(args: ParsedArgs, one: Option[str | None], other: Option[object]) -> None:
    if args.source(one) and args.source(other):
        raise UsageError(f"{args.source(one)} and {args.source(other)}: give one of the two")
