"""How a run ended, here or on a cluster, what it left, and what to type next: from plain values to lines. Pure."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtj.api.json import dig, text
from dtj.api.names import Condition
from dtj.api.status import RootCause
from dtj.cli.common.console import TERMINAL_WIDTH, Console, Step, Text, next_block
from dtj.cli.common.formatting import short_number, short_time, shown_path
from dtj.cli.common.job_view import cause_words, goodput_words, last_words, model_words
from dtj.cli.common.options import RUNS
from dtj.client.manifest_files import Document
from dtj.local.run_directory import LATEST, RunDirectory, is_url
from dtj.local.runner import End, FinishedRun, Result

_CAUSE_LINES: Final = 12
"""How many of the last lines of a failed replica are shown; the whole log is one command away."""


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run came from and where it is.

    ``base`` is the current directory, to which paths are shown; ``command`` what runs the job again; ``files`` those of
    ``base`` that it names; ``tensorboard`` the program of that name.
    """

    document: Document
    directory: RunDirectory
    base: Path
    command: tuple[str, ...] = ("dtj", "run")
    files: tuple[str, ...] = ()
    tensorboard: str = "tensorboard"

    def shown(self, path: Path) -> str:
        return shown_path(path, base=self.base)

    @property
    def program(self) -> tuple[str, ...]:
        """``dtj`` as it was typed."""
        return self.command[: self.command.index("run")]

    @property
    def report_command(self) -> str:
        """``dtj report`` of the run, which has the name of its job if it is the latest of the job."""
        run = self._latest.parent.name if self._is_latest else self.shown(self.directory.path)
        return shlex.join((*self.program, "report", "--run", run))

    @property
    def curves_command(self) -> str:
        """TensorBoard on the run's folder."""
        return shlex.join((self.tensorboard, f"--logdir={self._folder}"))

    @property
    def logs_of_replicas(self) -> str:
        """Their files, in the words of a shell: not the log of what runs them."""
        return f"{shlex.quote(self._folder)}/logs/*-*.log"

    @property
    def _folder(self) -> str:
        """The run's folder, by its short name if it is the latest of the job."""
        return self.shown(self._latest if self._is_latest else self.directory.path)

    @property
    def _latest(self) -> Path:
        return self.base / RUNS / self.directory.path.parent.name / LATEST

    @property
    def _is_latest(self) -> bool:
        return self.directory.path == self._latest.resolve()


def end_lines(
    ended: FinishedRun, place: RunPlace, *, warnings: Iterable[str] = (), width: int = TERMINAL_WIDTH
) -> tuple[Text, ...]:
    """How the run ended, what its logs warned of, what it left and where, and what to type next."""
    lines = {
        End.SUCCEEDED: _succeeded,
        End.FAILED: _failed,
        End.INVALID: _invalid,
        End.STOPPED: _stopped,
    }
    first, *rest = lines[ended.end](ended, place)
    steps = _next_steps(ended, place)
    block = next_block(steps, width=width) if steps else ()
    return (first, *(_field("warning", words) for words in warnings), *rest, *block)


def _succeeded(ended: FinishedRun, place: RunPlace) -> Iterator[Text]:
    yield _headline(ended.view.job, "succeeded", "bold green", after=ended.view.elapsed)
    result = ended.result
    if result is not None and (quality := _quality(result)) is not None:
        loss = f"  (loss {result.loss:.4f})" if result.loss is not None else ""
        yield _field(quality[0], f"{quality[1]} on held-out examples{loss}")
    if result is not None and result.examples_per_second is not None:
        yield _field("speed", f"{short_number(result.examples_per_second)} examples/s on average{_duration(result)}")
    exported = ended.status.export
    if exported is not None:
        path = exported.path if is_url(exported.path) else place.shown(Path(exported.path))
        yield _field("model", model_words(exported, path=path))
    if goodput := goodput_words(ended.status.goodput):
        yield _field("goodput", goodput)
    yield from _folders(ended, place)


def _duration(result: Result) -> str:
    """What the average leaves out, so that nobody divides the steps by the time and gets another speed."""
    if result.steps is None or result.duration_seconds is None:
        return ""
    resumed = f", resumed at step {result.first_step}" if result.first_step else ""
    seconds = short_time(result.duration_seconds)
    return f"  ({result.steps} steps{resumed}; {seconds} with compilation and checkpoints)"


def _quality(result: Result) -> tuple[str, str] | None:
    """What the trainer measured of the model, if it is one of the two that its tasks measure."""
    if result.accuracy is not None:
        return "accuracy", f"{100 * result.accuracy:.2f} %"
    if result.mean_absolute_error is not None:
        return "error", f"{result.mean_absolute_error:.4g} in the mean"
    return None


def _failed(ended: FinishedRun, place: RunPlace) -> Iterator[Text]:
    yield _headline(ended.view.job, "failed", "bold red", after=ended.view.elapsed)
    cause = ended.status.root_cause
    if cause is not None:
        yield from _cause_lines(cause.model_copy(update={"node": ""}))  # there is one machine
        yield _field("its log", place.shown(place.directory.replica_log(cause.hostname)))
    else:
        condition = ended.status.condition(Condition.FAILED)
        yield _field("cause", condition.message if condition is not None else "not known")
    yield from _folders(ended, place)


def _invalid(ended: FinishedRun, place: RunPlace) -> Iterator[Text]:
    condition = ended.status.condition(Condition.INVALID)
    yield Text(f"{place.document.title}: {condition.message if condition is not None else 'cannot be run'}")


def _stopped(ended: FinishedRun, place: RunPlace) -> Iterator[Text]:
    yield _headline(ended.view.job, "stopped", "bold yellow", after=ended.view.elapsed)
    yield from _folders(ended, place)


def _folders(ended: FinishedRun, place: RunPlace) -> Iterator[Text]:
    if _has_checkpoint(ended, place):
        yield _field("checkpoints", _checkpoint_url(place) or place.shown(place.directory.checkpoint))
    yield _field("logs", place.shown(place.directory.logs))


def _checkpoint_url(place: RunPlace) -> str | None:
    path = text(dig(place.document.body, "spec", "checkpoint", "path"))
    return path if is_url(path) else None


def _has_checkpoint(ended: FinishedRun, place: RunPlace) -> bool:
    if _checkpoint_url(place):
        progress = ended.status.progress
        return progress is not None and progress.last_checkpoint_step is not None
    return any(not path.name.startswith(".") for path in place.directory.checkpoint.iterdir())


def _next_steps(ended: FinishedRun, place: RunPlace) -> tuple[Step, ...]:
    """What to type next; nothing after an end that is one line."""
    page = Step(place.report_command, "show everything on one page")
    file = place.document.path
    match ended.end:
        case End.SUCCEEDED:
            curves = Step(place.curves_command, "show the curves")
            if file is None:
                return (page, curves)
            again = Step(shlex.join((*place.command, file)), "run it again")
            by_us = (*place.program, "run", "--cluster", "--code", ".", file)
            there = shlex.join(by_us if place.files else ("kubectl", "apply", "-f", file))
            return (page, curves, again, Step(there, "run it on a cluster"))
        case End.FAILED:
            return (page,)
        case End.STOPPED if file is not None:
            if _has_checkpoint(ended, place):
                return (Step(shlex.join((*place.command, "--resume", file)), "continue from the last checkpoint"),)
            return (Step(shlex.join((*place.command, file)), "run it from the start: it has written no checkpoint"),)
    return ()


# -- lines --------------------------------------------------------------------------------------------------------


def print_summary(console: Console, lines: Iterable[Text]) -> None:
    """The last lines of a run. On a terminal, values are wrapped between words; a pipe gets each line whole."""
    for line in lines:
        for part in fitted(line, width=console.width) if console.is_terminal else (line,):
            console.print(part, soft_wrap=True)


def width_of(console: Console) -> int:
    """The columns that commands and their purposes have; a pipe may be read anywhere."""
    return console.width if console.is_terminal else TERMINAL_WIDTH


def _headline(job: str, word: str, style: str, *, after: float) -> Text:
    """``digits succeeded after 14s``."""
    return Text.assemble((job, "bold"), " ", (word, style), f" after {short_time(after)}")


def _cause_lines(cause: RootCause) -> Iterator[Text]:
    """The replica that failed first and how, its last words, and what to do."""
    yield _field("cause", cause_words(cause))
    for line in last_words(cause)[-_CAUSE_LINES:]:
        yield Text(f"               {line}")
    if cause.hint:
        yield _field("hint", cause.hint)


def _field(name: str, value: str) -> Text:
    """A line of the summary. Its value may be wrapped (see :func:`fitted`), unlike a command, which is to be copied."""
    return Text.assemble("  ", (f"{name:<13}", "dim"), value, no_wrap=False)


_VALUE_COLUMN: Final = 15
_MIN_VALUE_WIDTH: Final = 20


def fitted(line: Text, *, width: int) -> tuple[Text, ...]:
    """What a terminal of this width shows for one line of the summary: a long value continues below its beginning."""
    room = width - _VALUE_COLUMN
    if line.no_wrap is not False or room < _MIN_VALUE_WIDTH or len(line.plain) <= width:
        return (line,)
    pieces = textwrap.wrap(line.plain[_VALUE_COLUMN:], room, break_on_hyphens=False)
    label = Text.assemble((line.plain[:_VALUE_COLUMN], "dim"))
    blank = " " * _VALUE_COLUMN
    return tuple(Text.assemble(blank if number else label, piece) for number, piece in enumerate(pieces))
