"""The operator's log lines, for machines and for people."""

from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest

from builders import job
from dtj.engine import logs
from dtj.engine.logs import JsonFormatter, LogFormat, TextFormatter, about


def log_record(message: str = "created 4 pods", **fields: object) -> logging.LogRecord:
    record = logging.LogRecord("dtj.engine", logging.INFO, __file__, 1, message, (), None)
    if fields:
        record.__dict__.update(about(job(), **fields))
    return record


def test_a_line_for_machines_is_one_json_object_with_the_job_as_fields() -> None:
    line = json.loads(JsonFormatter().format(log_record(action="create", reason="Missing")))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "dtj.engine",
        "message": "created 4 pods",
        "job": "default/digits",
        "uid": job().uid,
        "attempt": 1,
        "action": "create",
        "reason": "Missing",
    }


def test_a_line_for_people_begins_with_the_time_and_the_job() -> None:
    line = TextFormatter().format(log_record(action="create", reason="Missing"))
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO    default/digits: created 4 pods \(Missing\)", line)


def test_a_line_about_no_job_names_none() -> None:
    assert "job" not in json.loads(JsonFormatter().format(log_record("hello")))
    assert TextFormatter().format(log_record("hello")).endswith("INFO    hello")


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("chosen", "stream", "json_lines"),
    [
        (LogFormat.AUTO, io.StringIO, True),
        (LogFormat.AUTO, Screen, False),
        (LogFormat.TEXT, io.StringIO, False),
        (LogFormat.JSON, Screen, True),
    ],
)
def test_automatic_format_is_json_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, chosen: LogFormat, stream: type[io.StringIO], json_lines: bool
) -> None:
    root, printed = logging.getLogger(), stream()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(sys, "stderr", printed)
    logs.configure(chosen)
    logging.getLogger("dtj").info("hello")
    assert printed.getvalue().startswith("{") is json_lines
