"""Log lines: one a decision, JSON in the cluster, readable on a terminal.

A line about a job carries it as fields (:func:`about`), so that machines can select by them; the text says what
happened.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from dtj.api.job import Job
from dtj.engine.job_store import JobRecord

_FIELDS: Final = "dtj"
"""Attribute of a log record that holds our fields."""


class LogFormat(StrEnum):
    """How log lines look."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


def about(job: Job | JobRecord, **fields: object) -> dict[str, object]:
    """``extra`` for a log call about a job: its identity, its attempt, and ``fields`` such as action and reason."""
    identity: dict[str, object] = {"job": f"{job.namespace}/{job.name}", "uid": job.uid}
    return {_FIELDS: {**identity, "attempt": job.attempt, **fields}}


def configure(log_format: LogFormat, *, level: int = logging.INFO, filters: Sequence[logging.Filter] = ()) -> None:
    """Send all log lines of the process that pass ``filters`` to standard error."""
    json_lines = log_format is LogFormat.JSON or (log_format is LogFormat.AUTO and not sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if json_lines else TextFormatter())
    for line_filter in filters:
        handler.addFilter(line_filter)
    logging.basicConfig(level=level, handlers=[handler], force=True)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """``12:00:01 INFO default/digits: created 4 pods``."""

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        job = _fields(record).get("job")
        subject = f"{job}: " if job else ""
        line = f"{clock} {record.levelname:<7} {subject}{record.getMessage()}"
        reason = _fields(record).get("reason")
        if reason:
            line += f" ({reason})"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, _FIELDS, None)
    return fields if isinstance(fields, dict) else {}
