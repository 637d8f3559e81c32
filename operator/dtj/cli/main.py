"""The entry point of ``dtj`` and ``kubectl-dtj``."""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

from dtj import __version__
from dtj.cli import PROGRAM, VARIABLE
from dtj.cli.common.terminal import Exit, SafeHandler, discard_unwritable, say, say_lines, show_error


class Section(StrEnum):
    """The headings of ``dtj --help``."""

    START = "Start here"
    LOCAL = "On this machine"
    CLUSTER = "On a cluster"
    LOOK = "Look"
    STEER = "Steer"
    TOOLS = "Tools"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command as ``dtj --help`` lists it. ``target`` is where it is defined: ``package.module:function``."""

    name: str
    section: Section
    target: str
    summary: str
    """The first sentence of the command's help."""


_EMPTY_OPTION: Final = re.compile(r"--[a-z-]+=")


def _refuse_empty(args: Sequence[str]) -> None:
    for before, argument in pairwise(args):
        if not argument:
            named = before if before.startswith("-") else "an argument"
        elif _EMPTY_OPTION.fullmatch(argument):
            named = argument
        else:
            continue
        raise click.UsageError(f"{named}: empty; give a value, or leave it out")


_LONGEST_NAME: Final = 255
"""What a file system takes, and what a name of Kubernetes may have at most."""


_SELECTOR: Final = re.compile(r"--selector|-A?l")
"""The option whose value is no name, but any number of conditions on labels."""

_WITH_SELECTOR: Final = re.compile(r"--selector=|-A?l.")


def _refuse_long(args: Sequence[str]) -> None:
    for before, argument in pairwise(args):
        if _SELECTOR.fullmatch(before) or _WITH_SELECTOR.match(argument):
            continue
        option, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
        longest = max(len(os.fsencode(part)) for part in value.split("/"))
        if longest > _LONGEST_NAME:
            named = option + equals if equals else before if before.startswith("-") else "an argument"
            raise click.UsageError(
                f"{named}: has a name of {longest} bytes; names of files and objects have {_LONGEST_NAME} at most"
            )


class _ReaderGone(Exception):
    """Whoever read our output has gone. click would take a BrokenPipeError for an end with code 1."""


@contextmanager
def _reader_may_go() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderGone from error


class SectionedGroup(click.Group):
    """A group whose help lists its commands by section, and which imports a command only to run or complete it."""

    def __init__(self, *args: object, entries: Sequence[Entry] = (), **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.entries = {entry.name: entry for section in Section for entry in entries if entry.section is section}
        # click suggests from these names after a typing error.
        self.commands = {entry.name: click.Command(entry.name, short_help=entry.summary) for entry in entries}
        self._imported: set[str] = set()

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """As click does. Raises _ReaderGone."""
        with _reader_may_go():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does. Raises _ReaderGone."""
        with _reader_may_go():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands by section, within it in the order in which they were given."""
        return list(self.entries)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Takes ``help`` and ``version``, which other programs have as commands, for the options of these names.

        Raises:
            UsageError: an argument is empty, as that of a variable which is not set. Click takes an empty path for the
                working directory. Or it is longer than any file system takes.
        """
        if not ctx.resilient_parsing:  # a Tab
            _refuse_empty(args)
            _refuse_long(args)
        if args[0] == "help" and len(args) > 1:
            return super().resolve_command(ctx, [args[1], "--help"])
        if args[0] == "help":
            say_lines(ctx.get_help())
            ctx.exit()
        if args[0] == "version":
            option = next(one for one in self.params if one.name == "version")
            assert option.callback is not None
            option.callback(ctx, option, True)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported if this is its first use; None if there is none of that name."""
        entry = self.entries.get(cmd_name)
        if entry is not None and cmd_name not in self._imported:
            module, _, function = entry.target.partition(":")
            self.commands[cmd_name] = getattr(import_module(module), function)
            self._imported.add(cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries), default=0)
        for section in Section:
            rows = [
                (entry.name.ljust(width), entry.summary) for entry in self.entries.values() if entry.section is section
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands with their summaries, and the group's own options."""
        found = [
            CompletionItem(entry.name, help=entry.summary)
            for entry in self.entries.values()
            if entry.name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


START = """\
dtj trains TensorFlow models from one manifest, on this machine or on a cluster.

  dtj init first                       write a manifest and a script to start from
  cd first && dtj run job.yaml         train on this machine
  dtj explain job.yaml                 what a cluster would be asked for
  dtj run --cluster --code . job.yaml  train on a cluster with the files of this directory, and follow it from here

Have a TFJob of Kubeflow? dtj convert tfjob.yaml > job.yaml

dtj COMMAND --help explains a command; dtj --help lists them all."""


COMMANDS: Final = (
    Entry("init", Section.START, "dtj.cli.init:init", "Write a manifest and a training script to start from."),
    Entry(
        "validate",
        Section.START,
        "dtj.cli.validate:validate",
        "Check manifests, without a cluster or with one.",
    ),
    Entry(
        "explain",
        Section.START,
        "dtj.cli.explain:explain",
        "Show what would be created for manifests, without a cluster.",
    ),
    Entry("run", Section.LOCAL, "dtj.cli.run:run", "Run manifests here, or with --cluster on a cluster."),
    Entry("submit", Section.CLUSTER, "dtj.cli.submit:submit", "Submit jobs to a cluster."),
    Entry("wait", Section.CLUSTER, "dtj.cli.wait:wait", "Wait for a job's end, or for a condition."),
    Entry("list", Section.LOOK, "dtj.cli.list:list_jobs", "List the jobs of a namespace, by name."),
    Entry("status", Section.LOOK, "dtj.cli.status:status", "Show how far a job is, and why it does not run."),
    Entry("logs", Section.LOOK, "dtj.cli.logs:logs", "Print the logs of a job's replicas, merged by time."),
    Entry(
        "tensorboard",
        Section.LOOK,
        "dtj.cli.tensorboard:tensorboard",
        "Show a job's curves in a browser, until Ctrl-C.",
    ),
    Entry("report", Section.LOOK, "dtj.cli.report:report", "Gather what is known of a job on one page."),
    Entry(
        "doctor",
        Section.LOOK,
        "dtj.cli.doctor:doctor",
        "Check the cluster and the installation, and say what to do.",
    ),
    Entry("suspend", Section.STEER, "dtj.cli.steer:suspend", "Stop jobs so that they can be resumed."),
    Entry("resume", Section.STEER, "dtj.cli.steer:resume", "Resume suspended jobs from their last checkpoint."),
    Entry(
        "scale",
        Section.STEER,
        "dtj.cli.steer:scale",
        "Set the number of workers of an elastic job, or of a run on this machine with --run.",
    ),
    Entry("delete", Section.STEER, "dtj.cli.steer:delete", "Delete jobs and their pods, without asking."),
    Entry(
        "convert",
        Section.TOOLS,
        "dtj.cli.convert:convert_files",
        "Convert Kubeflow's TFJobs to DistributedTrainingJobs, on standard output.",
    ),
    Entry(
        "completion",
        Section.TOOLS,
        "dtj.cli.completion:completion",
        "Print a script by which a shell completes commands and jobs.",
    ),
)
"""All commands. A test compares each summary with the command's own help."""


@click.group(
    cls=SectionedGroup,
    entries=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="dtj", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """TensorFlow's distribution strategies from one manifest, on this machine or on a cluster."""
    if context.invoked_subcommand is None:
        say_lines(START)
    return Exit.OK


_ALLOCATIONS_TO_A_COLLECTION: Final = 50_000
"""Imports allocate much that stays. With Python's 700, the garbage collector looks at it again and again: a sixth of
the CPU time of ``dtj explain``."""


def main() -> NoReturn:
    """Run the command line, and leave with one of :class:`~dtj.cli.common.terminal.Exit`."""
    logging.lastResort = SafeHandler(logging.WARNING)
    _replace_what_cannot_be_encoded()
    gc.set_threshold(_ALLOCATIONS_TO_A_COLLECTION)
    try:
        code = _run()
    except (_ReaderGone, BrokenPipeError):  # the latter from completion, and from complaints
        code = Exit.SIGNAL + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001  # Python would leave with 1
        code = _report_failure(error)
    discard_unwritable()
    sys.exit(code)


def _replace_what_cannot_be_encoded() -> None:
    """A terminal of another encoding than UTF-8 gets ``?`` for a character that it lacks, and no traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a full disk says, a quota, a limit on the size of files, and a terminal that is gone."""


def _report_failure(error: Exception) -> int:
    """Print the traceback of a defect, or one line if the output cannot be written, or if there is no directory to work
    in. Returns the exit code."""
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        with suppress(OSError):  # standard error may be on that disk too
            say(f"the output cannot be written: {error.strerror}", err=True)
        return Exit.OUTPUT
    try:
        Path.cwd()
    except FileNotFoundError:
        say("the current directory has been removed: change to another one", err=True)
        return Exit.USAGE
    traceback.print_exc()
    return Exit.DEFECT


def _run() -> int:
    """Run the command, and say what is wrong with its arguments. Returns the exit code."""
    try:
        code: int = cli.main(prog_name=_program(Path(sys.argv[0])), complete_var=VARIABLE, standalone_mode=False)
    except click.ClickException as error:
        show_error(error)
        return error.exit_code
    except click.Abort:
        return Exit.SIGNAL + signal.SIGINT
    return code


def _program(file: Path) -> str:
    """What a person types to come here: ``kubectl dtj`` if this is a plugin, the path if there is no other way."""
    if file.name.startswith("kubectl-"):
        return file.name.replace("-", " ")
    if file.name == "__main__.py":
        return f"python -m {PROGRAM}"
    if shutil.which(PROGRAM):
        return PROGRAM
    from dtj.cli.common.formatting import shown_path

    return shown_path(file.absolute(), base=Path.cwd())


if __name__ == "__main__":
    main()
