"""How the trainer ends, seen from outside: signals, watchdog, exit codes, last words. Without TensorFlow."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from dtj.core.pod_failure import last_words
from dtj_trainer.errors import ExitCode, UsageError, may_pass
from dtj_trainer.process.user_function import guarded
from patience import PATIENCE_SECONDS

SOURCE = Path(__file__).resolve().parents[3] / "trainer-image"


def started(tmp_path: Path, code: str) -> subprocess.Popen[str]:
    """A Python process that runs the code with the trainer's modules at hand, and logs as the trainer does."""
    logs = "from dtj_trainer.process import logs; logs.configure_early({})\n"
    return subprocess.Popen(
        [sys.executable, "-c", logs + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "DTJ_TERMINATION_LOG": str(tmp_path / "words")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def listening(
    tmp_path: Path, code: str, number: int = signal.SIGTERM
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Such a process that has said that it is ready, and then got a signal; and what it says afterwards."""
    with started(tmp_path, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        yield process, process.stdout


def finished(tmp_path: Path, code: str) -> tuple[int, str]:
    """Exit code and output of such a process."""
    with started(tmp_path, code) as process:
        printed, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, printed


FINAL = ("raise UsageError('bad thing')",)
"""Of the ends below, those that no restart mends."""


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("raise UsageError('bad thing')", 2, "bad thing"),
        ("raise UsageError('no file', restart_may_help=True)", 2, "no file"),
        ("raise WorkersDiffer('apart')", 2, "apart"),
        ("raise Preempted('saved')", 42, "saved"),
        ("raise PeerLost('gone')", 75, "gone"),
        ("raise KeyError('x')", 1, "KeyError: 'x'"),
        ("raise SystemExit(0)", 0, None),
        ("pass", 0, None),
    ],
)
def test_each_end_has_its_exit_code_and_its_last_words_as_the_operator_reads_them(
    tmp_path: Path, body: str, code: int, words: str | None
) -> None:
    ended, printed = finished(
        tmp_path,
        f"""
        from dtj_trainer.process.ending import ProcessEnd
        from dtj_trainer.errors import *
        with ProcessEnd():
            {body}
        """,
    )
    assert ended == code
    assert ("Traceback" in printed) == (code == 1)
    written = tmp_path / "words"
    message, final = last_words(written.read_text(), code) if written.exists() else (None, False)
    assert message == (words and f"{words}\n")
    assert final == (body in FINAL)


def test_a_program_that_leaves_by_itself_runs_its_exit_handlers_and_tears_nothing_down(tmp_path: Path) -> None:
    ended = finished(
        tmp_path,
        """
        import atexit
        from dtj_trainer.process.ending import ProcessEnd
        class Pipeline:
            def __del__(self):
                print("torn down")
        kept = Pipeline()
        atexit.register(print, "handlers ran")
        with ProcessEnd():
            raise SystemExit(3)
        """,
    )
    assert ended == (3, "handlers ran\n")


@pytest.mark.parametrize("letter", ["x", "ü", "語", "🙂"])
def test_kubernetes_takes_all_of_the_last_words_also_where_an_error_is_too_long(tmp_path: Path, letter: str) -> None:
    error = f"UsageError('data: ' + 5000 * {letter!r})"
    code = f"""
        from dtj_trainer.process.ending import ProcessEnd
        from dtj_trainer.errors import UsageError
        with ProcessEnd():
            raise {error}
        """
    assert finished(tmp_path, code)[0] == 2
    written = (tmp_path / "words").read_bytes()
    assert 4090 < len(written) <= 4096
    message, final = last_words(written.decode(), 2)
    assert final
    assert message.startswith(f"data: {letter}")
    assert message.endswith(f"{letter}\n")


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EACCES, "Permission denied"), False),
        (OSError(errno.EROFS, "Read-only file system"), False),
        (OSError(errno.ENOENT, "No such file or directory"), True),
        (OSError(errno.ENOTCONN, "Transport endpoint is not connected"), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
    ],
)
def test_a_missing_right_stays_and_what_is_missing_or_does_not_answer_may_come(error: OSError, passes: bool) -> None:
    assert may_pass(error) == passes


def test_what_the_code_of_a_user_raises_may_pass_and_a_syntax_error_does_not() -> None:
    def fails() -> None:
        raise ConnectionError("the server of the weights is away")

    for call, passes in ((fails, True), (lambda: compile("x = (", "mine.py", "exec"), False)):
        with pytest.raises(UsageError) as raised:
            guarded("--model=mine:model", "model()", call)
        assert raised.value.restart_may_help == passes


TRACED = 'in user code:\\n\\n    File "/x/train.py", line 8, in step  *\\n        add()\\n\\n    ValueError: 4 and 5\\n'
ERRORS = {
    "a place in a module": ("KeyError('rate')", "user.py:2: KeyError: 'rate'"),
    "several lines": ("TypeError('elements of {\\nof type\\n}')", "user.py:2: TypeError: elements of {\nof type\n}"),
    "many lines": ("TypeError('\\n'.join('abcdefghij'))", "user.py:2: TypeError: a\nb\nc\nd\n...\ng\nh\ni\nj"),
    "compiled code of a library": (
        "eval(compile('int([])', 'h5py/h5f.pyx', 'eval'))",
        "user.py:2: TypeError: int() argument must be a string, a bytes-like object or a real number, not 'list'",
    ),
    "a traced function, whose place the message has": (f"ValueError('{TRACED}')", "train.py:8: ValueError: 4 and 5"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_names_its_place_in_the_code_of_the_user_first(tmp_path: Path, name: str) -> None:
    raised, words = ERRORS[name]
    (tmp_path / "user.py").write_text(f"def train():\n    raise {raised}\n")
    code = f"""
        import sys
        from dtj_trainer.process.ending import ProcessEnd
        sys.path.insert(0, {str(tmp_path)!r})
        with ProcessEnd():
            import user
            user.train()
        """
    assert finished(tmp_path, code)[0] == 1
    assert (tmp_path / "words").read_text() == f"{words}\n"


LISTENING = """
    import time
    from dtj_trainer.process.ending import leave
    from dtj_trainer.process.sigterm import Termination
    termination = Termination(leave=leave)
    termination.listen()
    termination.saves = {saves}
    {more}
    print("ready", flush=True)
    while not termination.requested:
        time.sleep(0.01)
    print("asked\\n", end="", flush=True)
    time.sleep(60)
"""


OVER_OURS = "import signal; signal.signal(signal.SIGTERM, lambda *_: None)"


@pytest.mark.parametrize(
    ("number", "more"), [(signal.SIGTERM, "pass"), (signal.SIGINT, "pass"), (signal.SIGTERM, OVER_OURS)]
)
def test_a_signal_ends_at_once_what_has_nothing_to_save_also_behind_another_handler(
    tmp_path: Path, number: int, more: str
) -> None:
    with listening(tmp_path, LISTENING.format(saves=False, more=more), number) as (process, _):
        assert process.wait(PATIENCE_SECONDS) == ExitCode.TERMINATED


def test_a_signal_is_a_request_while_there_is_something_to_save_and_the_second_is_none(tmp_path: Path) -> None:
    with listening(tmp_path, LISTENING.format(saves=True, more="pass")) as (process, output):
        printed = {output.readline(), output.readline()}  # two threads: in either order
        assert printed == {"SIGTERM: saving a checkpoint, then leaving\n", "asked\n"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == ExitCode.TERMINATED


WRITES = "context = termination.writing(); context.__enter__()"
WRITTEN = "SIGTERM: leaving when the file that is being written is complete\n"


def test_a_signal_waits_for_a_file_that_is_being_written_and_the_second_does_not(tmp_path: Path) -> None:
    with listening(tmp_path, LISTENING.format(saves=False, more=WRITES)) as (process, output):
        assert {output.readline(), output.readline()} == {WRITTEN, "asked\n"}
        process.send_signal(signal.SIGTERM)
        assert output.readline() == "SIGTERM: leaving at once\n"
        assert process.wait(PATIENCE_SECONDS) == ExitCode.TERMINATED


LEAVING = "SIGTERM: leaving at once\n"
OPEN = """
    import multiprocessing, os, signal, subprocess, sys, time
    from dtj_trainer.process.ending import leave
    from dtj_trainer.process.sigterm import Termination
    termination = Termination(leave=leave)
    termination.listen()
    termination.listen_openly()
    {body}
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("body", "code", "printed"),
    [
        ("pass", 143, LEAVING),
        ("signal.signal(signal.SIGTERM, lambda *_: os._exit(9))", 9, ""),
        ("signal.set_wakeup_fd(-1)", 143, LEAVING),
        (
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); termination.listen_openly()",
            143,
            LEAVING,
        ),
    ],
    ids=["alone", "a handler of the script's", "a pipe of the script's", "a handler of TensorFlow's"],
)
def test_a_script_hears_signals_as_under_python(tmp_path: Path, body: str, code: int, printed: str) -> None:
    with listening(tmp_path, OPEN.format(body=body)) as (process, output):
        assert output.read() == printed
        assert process.wait(PATIENCE_SECONDS) == code


FULL = "sys.stdout = open('/dev/full', 'w'); print('lost')"
NO_STREAM = "sys.stdout = type('Tee', (), {'write': lambda self, text: None})()"


@pytest.mark.parametrize("output", [FULL, NO_STREAM], ids=["a full disk", "an object of the script's"])
def test_an_output_that_cannot_be_flushed_keeps_nothing_from_its_end(tmp_path: Path, output: str) -> None:
    code, _ = finished(tmp_path, f"import os, sys\nfrom dtj_trainer.process.ending import leave\n{output}\nleave(42)")
    assert code == 42
    body = f"print('ready', flush=True); {output}; time.sleep(60)"
    with listening(tmp_path, OPEN.format(body=body)) as (process, _):
        assert process.wait(PATIENCE_SECONDS) == ExitCode.TERMINATED


def test_ctrl_c_interrupts_a_script_as_under_python(tmp_path: Path) -> None:
    with listening(tmp_path, OPEN.format(body="pass"), signal.SIGINT) as (process, output):
        assert "KeyboardInterrupt" in output.read()
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGINT


def test_a_signal_in_the_middle_of_a_print_is_heard_also_without_our_pipe(tmp_path: Path) -> None:
    body = """
    import io
    class Interrupted(io.FileIO):
        def write(self, data):
            os.kill(os.getpid(), signal.SIGTERM)
            return super().write(data)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(Interrupted(1, "w", closefd=False)))
    signal.set_wakeup_fd(-1)
    """
    assert finished(tmp_path, OPEN.format(body=body)) == (143, f"ready\n{LEAVING}")


@pytest.mark.parametrize("how", ["os.fork() or time.sleep(60)", "subprocess.Popen(['sleep', '60']).pid"])
def test_what_a_script_starts_ends_at_sigterm_and_nobody_else_hears_of_it(tmp_path: Path, how: str) -> None:
    body = f"child = {how}; os.kill(child, signal.SIGTERM); print(os.waitpid(child, 0)[1], flush=True)"
    with started(tmp_path, OPEN.format(body=body)) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [f"{signal.SIGTERM}\n", "ready\n"]
        assert process.poll() is None
        process.kill()


WATCHED = """
    import ctypes, time
    from dtj_trainer.process.ending import leave
    from dtj_trainer.errors import PeerLost
    from dtj_trainer.process.watchdog import Watchdog
    with Watchdog(0.2, PeerLost("nothing moved")) as watchdog:
        {body}
    time.sleep(3)
    print("alive", flush=True)
    leave(0)
"""


def test_a_watchdog_that_is_not_fed_ends_the_process_with_its_error(tmp_path: Path) -> None:
    code, printed = finished(tmp_path, WATCHED.format(body="time.sleep(60)"))
    assert (code, printed) == (75, "dtj_trainer: nothing moved\n")


@pytest.mark.parametrize("before", ["", "import io, sys; sys.stderr = io.StringIO(); watchdog.feed(2.0); "])
def test_a_watchdog_ends_even_a_process_whose_python_is_stuck_without_the_launcher_with_1(
    tmp_path: Path, before: str
) -> None:
    # PyDLL keeps the interpreter's lock during the call.
    code, printed = finished(tmp_path, WATCHED.format(body=f"{before}ctypes.PyDLL(None).sleep(60)"))
    assert code == 1
    assert printed.startswith("Timeout (")
    assert "most recent call first" in printed


def test_a_watchdog_gives_its_error_where_python_stood_still_for_some_seconds_alone(tmp_path: Path) -> None:
    code, printed = finished(tmp_path, WATCHED.format(body="ctypes.PyDLL(None).sleep(4); time.sleep(60)"))
    assert (code, printed) == (75, "dtj_trainer: nothing moved\n")


def test_a_watchdog_that_is_fed_or_left_does_nothing(tmp_path: Path) -> None:
    # A busy machine may take five of the six seconds; all that could end the process would have, before it is over.
    program = WATCHED.replace("Watchdog(0.2", "Watchdog(6.0").replace("time.sleep(3)", "time.sleep(8)")
    body = """from dtj_trainer.process import watchdog as module
        module._EXIT_AFTER = 1.0
        [(watchdog.feed(), time.sleep(0.15)) for _ in range(60)]"""
    assert finished(tmp_path, program.format(body=body)) == (0, "alive\n")
