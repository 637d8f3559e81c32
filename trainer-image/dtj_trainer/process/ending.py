"""How the process ends: the last line, for the log and for the pod's status, and the exit code that goes with it."""

import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from dtj_launch.child import leave_as
from dtj_launch.output import MESSAGE_BYTES, as_message, flush
from dtj_trainer.errors import ExitCode, TrainerError
from dtj_trainer.process import logs

log = logging.getLogger(__name__)

_KUBERNETES_LOG = Path("/dev/termination-log")

_MAX_LINES, _MAX_LINE = 4, 450
"""Lines from the beginning and from the end of an error, and characters of each: together below Kubernetes' limit."""

_TRAINER = tuple(str(Path(__file__).parents[2] / package) + os.sep for package in ("dtj_trainer", "dtj_launch"))
_GENERATED = "__autograph_generated_file"
_LIBRARY = re.compile(rf"^<|/(site|dist)-packages/|/lib/python\d|/{_GENERATED}|\.pyx$")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_ERROR = re.compile(r"^\s+[A-Za-z_][\w.]*(Error|Exception): ")
"""The error itself, indented, in the message of an error "in user code"."""


class ProcessEnd:
    """A context that the process does not outlive: it leaves with one of `ExitCode`, or as `SystemExit` says."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, SystemExit):
            # A script's own way to end: with its exit handlers, and what Python does with a text. Python's tear-down
            # ends the threads that call Python functions of TensorFlow's pipelines, which TensorFlow's waits for.
            leave_as(partial(_raise, error))
        if error is not None:
            end_with(error)
        leave(ExitCode.DONE)


def _raise(error: BaseException) -> NoReturn:
    raise error


def end_with(error: BaseException) -> NoReturn:
    """Says why the process ends, in one line for what was expected and with a traceback otherwise, and leaves."""
    logs.enable()
    if isinstance(error, TrainerError):
        words, code = error.last_words, error.exit_code
        log.error(str(error))
    else:
        words, code = error_text(error), ExitCode.FAILED
        log.error(words.splitlines()[0], exc_info=error)
    leave_message(words)
    leave(code)


def error_text(error: BaseException) -> str:
    """The error in a few lines, with the place in the user's code: ``train.py:12: ValueError: ...``.

    TensorFlow's and Keras' errors have many lines. The first ones name the error, the last ones the operation; those
    between are left out. An error inside a ``tf.function`` carries its place in its message.
    """
    lines = [line for line in "".join(traceback.format_exception_only(error)).splitlines() if line.strip()]
    place = user_place(error)
    if lines[0].endswith("in user code:"):
        frames = [found for found in map(_FRAME.match, lines) if found and not _LIBRARY.search(found["file"])]
        place = (frames[-1]["file"], int(frames[-1]["line"])) if frames else place
        named = [number for number, line in enumerate(lines) if _ERROR.match(line)]
        lines = lines[named[-1] :] if named else lines
        lines[0] = lines[0].strip()
    if place is not None:
        lines[0] = f"{os.path.basename(place[0])}:{place[1]}: {lines[0]}"
    if len(lines) > 2 * _MAX_LINES:
        lines = [*lines[:_MAX_LINES], "...", *lines[-_MAX_LINES:]]
    return "\n".join(line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 4]} ..." for line in lines)


def place_of_call() -> str:
    """Where the user's code is right now, as ``train.py:12: ``; nothing outside of it."""
    place = _place_in(traceback.extract_stack())
    return "" if place is None else f"{os.path.basename(place[0])}:{place[1]}: "


def user_place(error: BaseException) -> tuple[str, int] | None:
    """File and line of the innermost frame that is neither a library's nor the trainer's."""
    return _place_in(traceback.extract_tb(error.__traceback__))


def _place_in(frames: traceback.StackSummary) -> tuple[str, int] | None:
    own = [f for f in frames if not _LIBRARY.search(f.filename) and not f.filename.startswith(_TRAINER)]
    return (own[-1].filename, own[-1].lineno or 0) if own else None


def leave(code: int) -> NoReturn:
    """Ends the process now: TensorFlow's own tear-down takes 1 to 15 seconds and has nothing left to do."""
    flush()
    _remove_generated()
    os._exit(code)


def _remove_generated() -> None:
    """Removes the modules that AutoGraph has written into the folder for temporary files.

    At the end of a Python, which this is not, it does so itself.
    """
    for name, module in [*sys.modules.items()]:
        if name.startswith(_GENERATED) and module.__file__:
            with suppress(OSError):
                os.unlink(module.__file__)
                os.unlink(module.__cached__)


def leave_report(document: Mapping[str, Any]) -> None:
    """Leaves the last report of a completed task, and its exported model, as the last words: one line of JSON.

    The operator puts both into the job's status. Metrics and names that do not fit are left out.

    Args:
        document: that GET /status shows.
    """
    report = dict(document)
    parts = {"export": report.pop("export")} if "export" in report else {}
    line = json.dumps({**parts, "progress": report}, ensure_ascii=False)
    for part in ("metrics", "unchecked"):
        if len(line.encode()) < MESSAGE_BYTES:
            break
        report.pop(part, None)
        line = json.dumps({**parts, "progress": report}, ensure_ascii=False)
    leave_message(line)


def leave_message(words: str) -> None:
    """Writes the words where Kubernetes looks for a container's last words; later ones take their place."""
    given = os.environ.get("DTJ_TERMINATION_LOG")
    path = Path(given) if given else _KUBERNETES_LOG
    if not given and not os.access(path, os.W_OK):
        return
    try:
        path.write_bytes(as_message(words))
    except OSError as error:
        log.warning(f"termination message not written to {path}: {error.strerror}")
