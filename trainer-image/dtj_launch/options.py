"""The launcher's own command line. What it starts comes after `--` and is not looked at."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from . import __version__
from .communication import AUTO, VARIABLE, WAYS
from .errors import UsageError
from .logs import FORMAT_VARIABLE, FORMATS, LEVEL_VARIABLE, LEVELS, LogOptions
from .world import FILE


@dataclass(frozen=True)
class Options:
    """What to start, and how."""

    command: tuple[str, ...]
    """A program with its arguments; the arguments alone where `module` is given."""
    module: str | None
    preload: tuple[str, ...]
    check: tuple[str, str] | None
    """Module and function."""
    own_gate: bool
    start_timeout: float
    rejoin_timeout: float
    max_restarts: int
    restarts: bool
    replace_single_pod: bool
    codes: Mapping[int, int]
    communication: str
    """How gradients are to be sent, one of `communication.WAYS`."""
    grace: float | None
    log: LogOptions


def read(argv: Sequence[str], environ: Mapping[str, str]) -> Options:
    """Takes the command line (without the launcher's name) apart; `--help` and `--version` print and exit 0.

    Raises:
        UsageError: the first thing that cannot be.
    """
    own, command = _split(argv)
    _refuse_empty(own)
    given, unknown = _parser().parse_known_args(own)
    if unknown:
        raise UsageError(f"unrecognized arguments: {named(unknown)}; what to start comes after --; see --help")
    if not given.module and not command:
        raise UsageError("nothing to start: give `-- COMMAND...`, or `--module NAME -- ARGUMENTS...`")
    if not given.module and (given.preload or given.check):
        raise UsageError("--preload and --check are for Python modules: give --module, too")
    module, _, function = given.check.partition(":")
    if given.check and not (module and function):
        raise UsageError(f"--check={given.check}: give MODULE:FUNCTION")
    scope = environ.get("DTJ_RESTART_SCOPE", "")
    # The operator replaces the lost pod alone: its peers wait for as long as a pod may take to start. A coordinator
    # waits less: a lost server has all start again.
    collective = environ.get("DTJ_STRATEGY") != "ParameterServer"
    replaces_one = scope == "Pod" or bool(environ.get(FILE) and collective and scope != "Job")
    start_timeout = _seconds("--start-timeout", given.start_timeout)
    rejoin_timeout = _seconds("--rejoin-timeout", given.rejoin_timeout)
    return Options(
        command=tuple(command),
        module=given.module or None,
        preload=tuple(name for name in given.preload.split(",") if name),
        check=(module, function) if given.check else None,
        own_gate=given.own_gate,
        start_timeout=start_timeout,
        rejoin_timeout=start_timeout if replaces_one else min(rejoin_timeout, start_timeout),
        max_restarts=_whole("--max-restarts-in-place", given.max_restarts_in_place),
        restarts=scope != "Job",
        replace_single_pod=replaces_one,
        codes=_codes(given.map),
        communication=_one_of(WAYS, "", "", VARIABLE, environ) or AUTO,
        grace=_seconds("--grace", given.grace) if given.grace else None,
        log=LogOptions(
            _one_of(FORMATS, "--log-format", given.log_format, FORMAT_VARIABLE, environ) or FORMATS[0],
            _one_of(LEVELS, "--log-level", given.log_level, LEVEL_VARIABLE, environ) or "info",
        ),
    )


def named(unknown: Sequence[str]) -> str:
    """Arguments that nobody knows, as a message may show them: without values, any of which may be a secret.

    Messages get into the pod's status, which more people can read than its logs.
    """
    # What follows an argument may be its value.
    shown = [argument.partition("=")[0] for argument in unknown if argument.startswith("--") or len(argument) == 2]
    return " ".join(shown if unknown[0].startswith("-") else [unknown[0].partition("=")[0], *shown])


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    at = list(argv).index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


def _refuse_empty(own: Sequence[str]) -> None:
    """An empty value, as that of a shell variable which is not set, would be as if the option was not given."""
    for before, argument in zip(("", *own), own):
        if argument.startswith("--") and argument.endswith("="):
            raise UsageError(f"{argument}: empty; give a value, or leave it out")
        if not argument:
            raise UsageError(
                f"{before if before.startswith('--') else 'an argument'}: empty; give a value, or leave it out"
            )


def _seconds(flag: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise UsageError(f"{flag}={text}: give a number of seconds above 0")
    return number


def _whole(flag: str, text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{flag}={text}: give a whole number of at least 0")
    return int(text)


def _one_of(known: Sequence[str], flag: str, text: str, variable: str, environ: Mapping[str, str]) -> str:
    """The flag's text, else the variable's; empty if neither is given."""
    source, found = (flag, text) if text else (variable, environ.get(variable, ""))
    if found and found not in known:
        raise UsageError(f"{source}={found}: give one of {', '.join(known)}")
    return found


def _codes(text: str) -> Mapping[int, int]:
    codes = {}
    for pair in filter(None, text.split(",")):
        seen, _, mapped = pair.partition("=")
        if not (seen.isdecimal() and mapped.isdecimal() and 0 < int(seen) < 256 and int(mapped) < 256):
            raise UsageError(f"--map={text}: give pairs of exit codes such as 3=75, separated by commas")
        codes[int(seen)] = int(mapped)
    return codes


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line in place of argparse's usage text."""
        raise UsageError(f"{message}; what to start comes after --; see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dtj-launch",
        usage="dtj-launch [options] -- COMMAND...\n       dtj-launch [options] --module NAME -- ARGUMENTS...",
        allow_abbrev=False,
        description="Starts the program of one task of a DistributedTrainingJob: waits for its peers, passes signals "
        "on, and starts it again in its place when a peer was lost.",
        epilog="Exit codes: the program's own (128 + n after signal n); 2 bad input, 75 the peers did not come, 126 "
        "the program cannot be run, 127 the program does not exist, 143 asked to stop while nothing ran. SIGQUIT "
        "prints the stacks of all Python threads of the program.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"dtj-launch {__version__}")
    add("--module", default="", metavar="NAME", help="run this Python module, as python -m does")
    add(
        "--preload", default="", metavar="NAMES",
        help="modules to import once, before --module is forked from here; if that fails, each start is a process "
        "of its own; ps, workers of ParameterServer and stages of a Pipeline go without",
    )  # fmt: skip
    add(
        "--check", default="", metavar="MODULE:FUNCTION",
        help="call this first, with the arguments for --module: it leaves with an exit code where they are wrong, "
        "else returns a dict of JSON's: start_timeout, the seconds that the program waits for its peers, and preload, "
        "whether it needs that",
    )  # fmt: skip
    add("--own-gate", action="store_true", help="the program has its own start gate, as dtj_trainer has")
    add("--start-timeout", default="300", metavar="S", help="seconds to wait for the peers; then exit 75 (300)")
    add(
        "--rejoin-timeout", default="30", metavar="S",
        help="the same after a restart in place (30); DTJ_RESTART_SCOPE=Pod, or an elastic job without parameter "
        "servers, makes it --start-timeout and has 42, saved with a peer that was asked to stop, restart too; Job "
        "forbids restarts in place",
    )  # fmt: skip
    add(
        "--max-restarts-in-place", default="3", metavar="N",
        help="restarts in a row without a new step, before the program's exit code is passed on (3)",
    )  # fmt: skip
    add("--map", default="", metavar="A=B,...", help="exit with B if the program exits with A; 75 means a lost peer")
    add(
        "--log-format", default="", metavar="FORMAT",
        help="format of the launcher's own lines: plain (dtj-launch: and the message), text (with time, level and "
        "logger) or json (an object a line); DTJ_LOG_FORMAT sets it for the program dtj_trainer, too (plain)",
    )  # fmt: skip
    add(
        "--log-level", default="", metavar="LEVEL",
        help="lowest level that is shown: debug, info, warning or error; or DTJ_LOG_LEVEL (info)",
    )  # fmt: skip
    add("--grace", default="", metavar="S", help="seconds after SIGTERM or SIGINT until the program is killed (never)")
    return parser
