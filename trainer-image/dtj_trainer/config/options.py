"""Options of the command line: how a dataclass declares them, how they are read, and `--help`.

A group of options is a dataclass, and an option one of its fields, with flag, default, meaning and help in one place.
An option is found on the command line, else in its environment variable, else by its default; an error names the one
that held the value. Must not import TensorFlow: a bad argument has to be refused at once.
"""

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from dtj_launch.options import named
from dtj_trainer.config.store_url import Location, is_url, without_credentials
from dtj_trainer.config.store_url import place as place_of
from dtj_trainer.errors import UsageError
from dtj_trainer.version import __version__

T = TypeVar("T")
_OPTION = "option"


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a field knows of its option; see `option`."""

    flag: str
    parse: Callable[[str], object]
    default: object
    help: str
    variable: str | None
    metavar: str | None
    for_scripts: bool


def option(
    flag: str,
    *,
    parse: Callable[[str], object],
    default: T,
    help: str,  # noqa: A002 - as argparse calls it
    variable: str | None = None,
    metavar: str | None = "N",
    for_scripts: bool = False,
) -> T:
    """A field of `Options` that holds the value of an option.

    Args:
        flag: such as `--seed`.
        parse: turns text into the value, or raises ValueError saying what is wanted.
        default: the value where the option is not given.
        help: what it is, in `--help`.
        variable: the environment variable that stands in for the flag.
        metavar: what `--help` shows in place of a value; None: it takes no value, and `parse` gets an empty text.
        for_scripts: whether it also means something next to `--script`.
    """
    declared = Option(
        flag=flag, parse=parse, default=default, help=help, variable=variable, metavar=metavar, for_scripts=for_scripts
    )
    # Not `default=default`: a dataclass refuses a mapping there.
    return field(default_factory=lambda: default, metadata={_OPTION: declared})


@dataclass(frozen=True, kw_only=True)
class Options:
    """A group of options. `__post_init__` refuses those that contradict each other.

    Raises:
        UsageError: in `__post_init__`.
    """

    title: ClassVar[str]
    """Over the group in `--help`; several classes may have the same."""
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Field -> what decides its value, as a message shows it: `--flag=text` or `VARIABLE=text`. Others: not given."""


def options_of(owner: type[Options]) -> dict[str, Option]:
    """The options of a group, by the names of their fields."""
    return {each.name: each.metadata[_OPTION] for each in fields(owner) if _OPTION in each.metadata}


@dataclass(frozen=True)
class Arguments:
    """What this process was started with."""

    texts: Mapping[str, str]
    """Flag -> its text, of the flag or else of its variable; others are not given. An empty variable is none."""
    sources: Mapping[str, str]
    """Flag -> what decides it, as a message shows it: `--flag=text` or `VARIABLE=text`."""
    environ: Mapping[str, str]
    rest: tuple[str, ...] | None = None
    """What follows `--`: a script's arguments."""

    def values(self, owner: type[Options]) -> dict[str, Any]:
        """The fields of a group of options: the value of each option, and `given`.

        Raises:
            UsageError: the text given for an option cannot be parsed.
        """
        declared = options_of(owner)
        given = {name: self.sources[one.flag] for name, one in declared.items() if one.flag in self.sources}
        found: dict[str, Any] = {"given": given}
        for name, one in declared.items():
            try:
                found[name] = one.parse(self.texts[one.flag]) if name in given else one.default
            except ValueError as wanted:
                raise UsageError(f"{given[name]}: {wanted}") from None
        return found


def read(argv: Sequence[str], environ: Mapping[str, str], owners: Sequence[type[Options]]) -> Arguments:
    """Takes the command line apart; `--help` and `--version` print and exit 0.

    Raises:
        UsageError: an unknown or incomplete argument.
    """
    own, dashes, rest = _at_dashes(argv)
    given, unknown = _parser(owners).parse_known_args(own)
    if unknown:
        raise UsageError(f"unrecognized arguments: {named(unknown)}; see --help")
    texts: dict[str, str] = {}
    sources: dict[str, str] = {}
    for one in (one for owner in owners for one in options_of(owner).values()):
        text, source = getattr(given, one.flag), one.flag
        if text is None and one.variable:
            text, source = environ.get(one.variable) or None, one.variable
        if text is not None:
            texts[one.flag], sources[one.flag] = text, f"{source}={without_credentials(text)}"
    return Arguments(texts, sources, environ, tuple(rest) if dashes else None)


def _at_dashes(argv: Sequence[str]) -> tuple[Sequence[str], bool, Sequence[str]]:
    """What is before `--`, whether there is one, and what is after it."""
    if "--" not in argv:
        return argv, False, ()
    at = list(argv).index("--")
    return argv[:at], True, argv[at + 1 :]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line in place of argparse's usage text."""
        raise UsageError(f"{message}; see --help")


def _parser(owners: Iterable[type[Options]]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m dtj_trainer",
        allow_abbrev=False,
        description="Trains one replica of a DistributedTrainingJob, or a whole job on this machine. TF_CONFIG "
        "describes the rest of the job.",
        epilog="Exit codes: 0 done, 1 error in the training, 2 bad input, 42 stopped on request and saved, 75 another "
        "task went away, 143 stopped on request with nothing to save. Without any option, the outputs go to "
        "./dtj-output.",
    )
    parser.add_argument("--version", action="version", version=f"dtj-trainer {__version__}")
    groups: dict[str, Any] = {}
    for owner in owners:
        if owner.title not in groups:
            groups[owner.title] = parser.add_argument_group(owner.title)
        for one in options_of(owner).values():
            if one.metavar is None:
                groups[owner.title].add_argument(one.flag, dest=one.flag, action="store_const", const="", help=one.help)
            else:
                groups[owner.title].add_argument(
                    one.flag, dest=one.flag, metavar=one.metavar, help=one.help + _otherwise(one)
                )
    return parser


def _otherwise(one: Option) -> str:
    parts = [] if one.default in (None, (), {}) else [f"default: {'on' if one.default is True else one.default}"]
    parts += [f"or {one.variable}"] if one.variable else []
    return f" ({'; '.join(parts)})" if parts else ""


# What the text of an option means: each returns the value, or raises ValueError saying what is wanted.


def some_text(text: str) -> str:
    """Any text but none."""
    if not text:
        raise ValueError("empty; give a value, or leave the option out")
    return text


def place(text: str) -> Path | Location:
    """A directory, or a URL of an object store."""
    return place_of(some_text(text))


def directory(text: str) -> Path:
    """A directory of this machine."""
    if is_url(text):
        raise ValueError("give a directory of this machine, not a URL")
    return Path(some_text(text))


def whole(minimum: int) -> Callable[[str], int]:
    """A whole number from `minimum` on."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise ValueError(f"give a whole number of at least {minimum}")
        return number

    return parse


def positive(text: str) -> float:
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError("give a number above 0")
    return number


def is_port(text: str) -> bool:
    """Whether it is the number of a port."""
    return text.isdecimal() and 0 < int(text) < 65536


def one_of(names: Sequence[str], kind: str) -> Callable[[str], str]:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"no such {kind}; this trainer knows {', '.join(names)}")
        return text

    return parse


def on_or_off(text: str) -> bool:
    """Whether it is `on`, and not `off`."""
    if text not in ("on", "off"):
        raise ValueError("give on or off")
    return text == "on"


def names(text: str) -> tuple[str, ...]:
    """Several names, with commas."""
    found = tuple(name.strip() for name in text.split(","))
    if not all(found):
        raise ValueError("give names with commas between them")
    return found
