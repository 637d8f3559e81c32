"""Log lines of the launcher and the trainer: three formats, levels, and no effect on what a program logs itself."""

import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtj.api.names import Env
from dtj.core.platform import TRAINER_LOG_FORMATS
from dtj_launch import logs
from dtj_launch.logs import JSON, PLAIN, TEXT, LogOptions, PlainFormatter
from patience import PATIENCE_SECONDS

SOURCE = Path(__file__).resolve().parents[3] / "trainer-image"
NAME = "a_package_of_a_test"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A module's logger in a package of its own."""
    yield logging.getLogger(f"{NAME}.module")
    package = logging.getLogger(NAME)
    package.handlers, package.propagate = [], True


def configure(options: LogOptions, **context: object) -> None:
    logs.configure(NAME, options, plain=PlainFormatter("prog"), context=context)


def test_plain_is_the_message_alone_with_a_word_for_what_is_not_information(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogOptions(level="debug"))
    log.info("resumed: step 60 of 90")
    log.warning("no status")
    log.debug("detail")
    log.error("--epochs=0: give more")
    printed = capsys.readouterr()
    assert printed.out == "resumed: step 60 of 90\nwarning: no status\ndebug: detail\n"
    assert printed.err == "prog: --epochs=0: give more\n"


def test_plain_shows_the_traceback_of_an_error_and_nothing_in_front_of_it(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogOptions())
    try:
        raise ValueError("no")
    except ValueError as error:
        log.error("ValueError: no", exc_info=error)
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback (most recent call last):\n")
    assert printed.endswith("\nValueError: no\n")


def test_text_has_time_level_and_the_logger_of_the_module(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogOptions(TEXT))
    log.info("resumed")
    clock, rest = capsys.readouterr().out.split(" ", 1)
    assert [len(part) for part in clock.split(":")] == [2, 2, 2]
    assert rest == f"INFO    {NAME}.module: resumed\n"


def test_json_is_an_object_a_line_with_the_task_and_the_fields_of_the_line(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(LogOptions(JSON), job="ns/digits", task="worker 0")
    log.info("step 5", extra=logs.fields(progress={"step": 5}))
    log.error("ends", exc_info=ValueError("no"))
    printed = capsys.readouterr()
    line = json.loads(printed.out)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": f"{NAME}.module",
        "message": "step 5",
        "job": "ns/digits",
        "task": "worker 0",
        "progress": {"step": 5},
    }
    assert json.loads(printed.err)["exception"] == "ValueError: no"


def test_the_operator_knows_the_same_formats() -> None:
    assert TRAINER_LOG_FORMATS == logs.FORMATS
    assert logs.FORMAT_VARIABLE == Env.LOG_FORMAT


def test_a_level_hides_what_is_below_it(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogOptions(level="warning"))
    log.info("hidden")
    log.warning("shown")
    assert capsys.readouterr().out == "warning: shown\n"


def test_configured_again_each_line_comes_once(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogOptions())
    configure(LogOptions())
    log.info("once")
    assert capsys.readouterr().out == "once\n"


def test_a_handler_of_the_programs_own_takes_the_place_of_ours(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = found.append  # type: ignore[method-assign, assignment]
    logging.getLogger(NAME).addHandler(handler)
    configure(LogOptions())
    log.warning("for the program")
    assert [record.getMessage() for record in found] == ["for the program"]
    assert capsys.readouterr().out == ""


def test_the_context_comes_from_the_variables_of_the_operator() -> None:
    environ = {"DTJ_JOB_NAME": "digits", "DTJ_NAMESPACE": "ns", "DTJ_ROLE": "worker", "DTJ_INDEX": "1"}
    assert logs.context_of({**environ, "DTJ_ATTEMPT": "2"}) == {
        "job": "ns/digits",
        "task": "worker 1",
        "attempt": "2",
    }
    assert logs.context_of({}) == {}


def test_what_the_environment_cannot_be_is_the_default_until_the_options_are_read() -> None:
    assert logs.from_environment({"DTJ_LOG_FORMAT": "xml", "DTJ_LOG_LEVEL": "loud"}) == LogOptions(PLAIN, "info")
    assert logs.from_environment({"DTJ_LOG_FORMAT": "json", "DTJ_LOG_LEVEL": "error"}) == LogOptions(JSON, "error")


def python(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A Python that finds the launcher and the trainer."""
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), **environ}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def output_of(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return python("-c", textwrap.dedent(code), **environ)


OURS = """
    import logging, logging.config, os
    from dtj_trainer.process import logs
    logs.configure_early(os.environ)
    ours = logging.getLogger("dtj_trainer.user_code.session")
"""


def test_a_script_that_configures_logging_gets_its_own_lines_in_its_format_and_ours_once_in_ours() -> None:
    ended = output_of(
        OURS
        + """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s of the script: %(message)s")
    logging.getLogger("mine").info("hello")
    ours.info("step 1/2")
    """
    )
    assert ended.stdout == "step 1/2\n"
    assert ended.stderr == "INFO of the script: hello\n"


def test_ours_leaves_the_root_logger_as_python_has_it() -> None:
    ended = output_of(OURS + "\n    print(logging.getLogger().handlers, logging.getLogger().level)")
    assert ended.stdout == f"[] {logging.WARNING}\n"


@pytest.mark.parametrize("configures", ["logging.config.dictConfig({'version': 1})", "pass"])
def test_the_error_that_ends_the_process_is_shown_also_after_a_script_has_disabled_all_loggers(
    configures: str, tmp_path: Path
) -> None:
    ended = output_of(
        OURS
        + f"""
    from dtj_trainer.process.ending import ProcessEnd
    from dtj_trainer.errors import UsageError
    with ProcessEnd():
        {configures}
        raise UsageError("--epochs=0: give more")
    """,
        DTJ_TERMINATION_LOG=str(tmp_path / "words"),
    )
    assert (ended.returncode, ended.stderr) == (2, "dtj_trainer: --epochs=0: give more\n")


@pytest.mark.parametrize("module", ["dtj_launch", "dtj_trainer"])
def test_a_format_that_there_is_not_is_refused_and_its_variable_named(module: str) -> None:
    ended = python("-m", module, *(["--", "true"] if module == "dtj_launch" else []), DTJ_LOG_FORMAT="xml")
    assert ended.returncode == 2
    assert "DTJ_LOG_FORMAT=xml: " in ended.stderr
    assert "plain, text, json" in ended.stderr


def test_a_bad_option_is_reported_as_json_if_the_environment_asks_for_it() -> None:
    line = json.loads(python("-m", "dtj_trainer", "--epochs=0", DTJ_LOG_FORMAT="json").stderr)
    assert (line["level"], line["logger"]) == ("error", "dtj_trainer.process.ending")
    assert line["message"].startswith("--epochs=0: ")


def test_the_launchers_lines_are_json_and_the_programs_lines_stay_as_they_are() -> None:
    ended = python("-m", "dtj_launch", "--log-format=json", "--", "no-such-program")
    assert ended.returncode == 127
    assert json.loads(ended.stderr)["message"] == "no-such-program: command not found"
