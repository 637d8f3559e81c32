"""Log lines of the launcher and of the trainer, by Python's `logging`. Standard library only.

The loggers of these packages have handlers of their own and pass nothing on to the root logger, which belongs to the
program: its `logging.basicConfig` changes nothing here, and nothing here changes what the program logs. A handler that
the program gives to one of these loggers takes the place of ours.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

PLAIN, TEXT, JSON = FORMATS = ("plain", "text", "json")
"""The message alone; with time, level and logger; or an object a line. `text` and `json` are those of dtj-operator."""
LEVELS = ("debug", "info", "warning", "error")
FORMAT_VARIABLE, LEVEL_VARIABLE = "DTJ_LOG_FORMAT", "DTJ_LOG_LEVEL"
_FIELDS = "dtj"
"""Attribute of a log record that holds our fields."""


@dataclass(frozen=True)
class LogOptions:
    """How log lines look, and the lowest level that is shown."""

    format: str = PLAIN
    level: str = "info"


def from_environment(environ: Mapping[str, str]) -> LogOptions:
    """What the environment asks for, and the default for what it cannot be: that is refused with the options."""
    given, level = environ.get(FORMAT_VARIABLE), environ.get(LEVEL_VARIABLE)
    return LogOptions(given if given in FORMATS else PLAIN, level if level in LEVELS else "info")


def context_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Fields of each JSON line, from the variables that the operator sets: job, task, attempt."""
    job, namespace = environ.get("DTJ_JOB_NAME"), environ.get("DTJ_NAMESPACE")
    role, index = environ.get("DTJ_ROLE"), environ.get("DTJ_INDEX")
    found = {
        "job": f"{namespace}/{job}" if job and namespace else job,
        "task": f"{role} {index}" if role and index else None,
        "attempt": environ.get("DTJ_ATTEMPT"),
    }
    return {name: value for name, value in found.items() if value}


def fields(**values: object) -> dict[str, object]:
    """`extra` for a log call: what a JSON line has next to its message, so that programs need not read the text."""
    return {_FIELDS: values}


def configure(
    logger: str,
    options: LogOptions,
    *,
    plain: logging.Formatter,
    context: Mapping[str, object],
    write: Callable[[int, str], None] | None = None,
) -> None:
    """Has a logger and those below it write lines; a second call replaces the first.

    Errors go to standard error, all else to standard output. Each has a handler, and so a lock, of its own: an error
    that ends the process does not wait for a line that nobody reads.

    Args:
        logger: name of a package's logger.
        plain: formatter of the format `plain`.
        context: fields of every JSON line, such as job and task.
        write: writes text to a file descriptor, 1 or 2, in place of `sys.stdout` and `sys.stderr`.
    """
    tree = logging.getLogger(logger)
    foreign = [handler for handler in tree.handlers if not isinstance(handler, _LineHandler)]
    if not foreign:
        formatter = {PLAIN: plain, TEXT: TextFormatter(), JSON: JsonFormatter(context)}[options.format]
        tree.handlers = [_LineHandler(descriptor, formatter, write) for descriptor in (1, 2)]
        tree.setLevel(options.level.upper())
    tree.propagate = False


def enable(logger: str) -> None:
    """Has a logger and those below it write again after `logging.config` disabled them, as it does with all others."""
    for name, found in logging.getLogger().manager.loggerDict.items():
        if isinstance(found, logging.Logger) and (name == logger or name.startswith(f"{logger}.")):
            found.disabled = False


class PlainFormatter(logging.Formatter):
    """`resumed: step 60 of 90`, `warning: no status on port 80`, `dtj_trainer: --epochs=0: ...`; an error's traceback.

    Args:
        program: stands before errors, or before every line where `always` is set.
    """

    def __init__(self, program: str, *, always: bool = False) -> None:
        super().__init__()
        self._program = program
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_info:
            return self.formatException(record.exc_info)
        level = f"{record.levelname.lower()}: " if record.levelno in (logging.DEBUG, logging.WARNING) else ""
        program = f"{self._program}: " if self._always or record.levelno >= logging.ERROR else ""
        return f"{program}{level}{record.getMessage()}"


class TextFormatter(logging.Formatter):
    """`12:00:01 INFO    dtj_trainer.training.controller: resumed: step 60 of 90`."""

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        line = f"{clock} {record.levelname:<7} {record.name}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time in UTC, level, logger, message, the context, and the fields of the line."""

    def __init__(self, context: Mapping[str, object]) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        own = getattr(record, _FIELDS, None)
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._context,
            **(own if isinstance(own, dict) else {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _LineHandler(logging.Handler):
    """Writes each line in one piece: to standard error if it is an error, else to standard output."""

    def __init__(self, descriptor: int, formatter: logging.Formatter, write: Callable[[int, str], None] | None) -> None:
        super().__init__(logging.ERROR if descriptor == 2 else logging.NOTSET)
        self.setFormatter(formatter)
        self._descriptor = descriptor
        self._write = write or _print

    def filter(self, record: logging.LogRecord) -> bool:
        return (record.levelno >= logging.ERROR) == (self._descriptor == 2)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(self._descriptor, self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - as all handlers of Python's do
            self.handleError(record)


def _print(descriptor: int, text: str) -> None:
    # Looked up for each line: a script may replace them.
    stream = sys.stderr if descriptor == 2 else sys.stdout
    stream.write(text)
    stream.flush()
