"""Programs that are stuck as a whole, below a launcher: it knows until when they are alive. Real processes."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from support.launched import Launch, Launched

Watched = Callable[[str], Launched]

WATCHED = """
    import ctypes, os, time
    from dtj_trainer.errors import PeerLost
    from dtj_trainer.process import watchdog
    from dtj_trainer.process.watchdog import LastResort, Watchdog
    watchdog._EXIT_AFTER, watchdog._STACKS_BEFORE, watchdog._TELL_EVERY = 1.0, 0.8, 0.1
    {body}
    print("alive", flush=True)
"""
# PyDLL keeps the interpreter's lock during the call, as TensorFlow does while it connects to its peers.
STUCK = "ctypes.PyDLL(None).sleep(60)"


@pytest.fixture
def watched(launch: Launch) -> Watched:
    """Starts a launcher with a program of Python."""

    def start(body: str) -> Launched:
        code = textwrap.dedent(WATCHED).replace("{body}", textwrap.dedent(body))
        return launch("--", sys.executable, "-c", code)

    return start


def test_it_ends_with_the_code_of_its_watchdog_and_prints_its_stacks(watched: Watched) -> None:
    launched = watched(f"with Watchdog(0.2, PeerLost('nothing moved')):\n    {STUCK}")
    assert launched.wait() == 75
    assert "Timeout (" in launched.output
    assert "most recent call first" in launched.output
    assert "dtj-launch: warning: the program is past its own deadline, and stuck: killing it; this is exit code 75" in (
        launched.output
    )


def test_a_deadline_that_moves_counts_and_so_does_the_earliest_of_several(watched: Watched) -> None:
    body = f"""
        long, short = LastResort(75), LastResort(9)
        long.set(60)
        for _ in range(20):
            short.set(0.4)
            time.sleep(0.1)
        print("moved", flush=True)
        {STUCK}
    """
    launched = watched(body)
    assert launched.wait() == 9
    assert "moved" in launched.output


def test_what_was_left_or_belongs_to_a_fork_ends_nothing(watched: Watched) -> None:
    body = """
        with Watchdog(0.2, PeerLost("nothing moved")):
            pass
        if os.fork() == 0:
            LastResort(9).set(0.1)
            time.sleep(30)
        time.sleep(2)
    """
    launched = watched(body)
    assert launched.wait() == 0
    assert "alive" in launched.output


def test_the_end_of_a_script_that_succeeded_is_success_though_python_is_stuck_in_it(watched: Watched) -> None:
    assert watched(f"LastResort(0).set(0.3)\n{STUCK}").wait() == 0


def test_a_script_that_is_stuck_after_its_last_exit_handler_ends_with_its_code(watched: Watched) -> None:
    body = """
        import atexit
        from dtj_trainer.user_code import script_runner
        script_runner._TEAR_DOWN_SECONDS = 0.3
        script_runner._TearDown().code = 42
        atexit.register(print, "handled", flush=True)
        atexit.register(time.sleep, 1)
        class Stuck:
            def __del__(self, sleep=time.sleep):
                sleep(60)
        stuck = Stuck()
    """
    launched = watched(body)
    assert launched.wait() == 42
    assert "handled" in launched.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_ends_it_where_it_said_that_it_may_be_stuck(watched: Watched, number: int) -> None:
    body = f"""
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM, signal.SIGINT}})
        with watchdog.unattended():
            print("ready", flush=True)
            {STUCK}
    """
    launched = watched(body)
    launched.wait_for("ready")
    launched.send(number)
    assert launched.wait() == 143
    assert "asked to stop, and stuck: killing it; this is exit code 143" in launched.output


def test_a_program_that_can_answer_a_request_to_stop_does(watched: Watched) -> None:
    body = """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: (print("own", flush=True), os._exit(42)))
        with watchdog.unattended():
            print("ready", flush=True)
            time.sleep(60)
    """
    launched = watched(body)
    launched.wait_for("ready")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 42


def test_a_file_that_has_the_number_of_the_pipe_by_now_is_not_written_to(watched: Watched, tmp_path: Path) -> None:
    body = f"""
        number = int(os.environ["DTJ_DEADLINES"].partition(":")[0])
        other = os.open({os.fspath(tmp_path / "other")!r}, os.O_CREAT | os.O_WRONLY)
        os.dup2(other, number)
        LastResort(9).set(60)
        LastResort(9).cancel()
    """
    assert watched(body).wait() == 0
    assert (tmp_path / "other").read_bytes() == b""
