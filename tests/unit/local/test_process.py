"""Processes that play pods: they end as they were asked to, and leave nothing behind however the runner ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dtj.local.process import Process, tail
from support.local_runs import MARK, marked_processes, new_mark
from support.waiting import eventually

WAITS = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
HAS_CHILDREN = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
    "print('up', flush=True); time.sleep(600)"
)


class Harness:
    """Starts processes that a test can find again."""

    def __init__(self, folder: Path) -> None:
        self.mark = new_mark()
        self.log = folder / "process.log"

    async def start(self, code: str, **environment: str) -> Process:
        command = [sys.executable, "-c", code]
        return await self.execute(*command, **environment)

    async def execute(self, *command: str, **environment: str) -> Process:
        environment = {"PATH": os.environ["PATH"], MARK: self.mark, **environment}
        return await Process.start(command, environment=environment, log=self.log)

    async def up(self, processes: int = 1) -> None:
        """Wait until so many processes have reported that they are up."""

        def have_started() -> None:
            assert self.log.exists()
            assert self.log.read_text().count("up") == processes

        await asyncio.to_thread(eventually, have_started)

    async def gone(self) -> None:
        """Wait until nothing of it is left."""
        await asyncio.to_thread(eventually, self._nothing_left)

    def _nothing_left(self) -> None:
        assert marked_processes(self.mark) == []


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
    ],
)
async def test_the_exit_code_is_the_commands_and_signals_are_reported_as_container_runtimes_do(
    harness: Harness, code: str, exit_code: int
) -> None:
    process = await harness.start(code)
    assert await process.wait() == exit_code


async def test_output_and_errors_go_to_the_log(harness: Harness) -> None:
    process = await harness.start("import sys; print('out', flush=True); print('err', file=sys.stderr)")
    await process.wait()
    assert harness.log.read_text() == "out\nerr\n"


async def test_standard_input_is_empty(harness: Harness) -> None:
    process = await harness.start("import sys; print(repr(sys.stdin.read()))")
    assert await process.wait() == 0
    assert harness.log.read_text() == "''\n"


async def test_a_broken_pipe_ends_a_command_as_it_does_in_a_shell(harness: Harness) -> None:
    process = await harness.execute("sh", "-c", "(trap '' TERM; yes; echo status $? >&2) | head -n 1")
    await process.wait()
    assert "status 141" in harness.log.read_text()


@pytest.mark.parametrize(
    ("command", "exit_code", "words"),
    [("no-such-program", 127, "command not found"), ("/", 126, "cannot be run: Permission denied")],
)
async def test_a_command_that_cannot_be_run_says_so_in_its_log(
    harness: Harness, command: str, exit_code: int, words: str
) -> None:
    process = await harness.execute(command)
    assert await process.wait() == exit_code
    assert harness.log.read_text() == f"{command}: {words}\n"


async def test_the_whole_group_gets_the_signal_to_end(harness: Harness) -> None:
    process = await harness.start(HAS_CHILDREN)
    await harness.up()
    process.terminate()
    assert await process.wait() == 143
    await harness.gone()


async def test_what_is_ended_is_gone_before_the_event_loop_closes(harness: Harness) -> None:
    process = await harness.start(DEAF)
    await harness.up()
    await process.end()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_a_command_that_hears_no_signal_is_killed(harness: Harness) -> None:
    process = await harness.start(DEAF)
    await harness.up()
    process.terminate()
    process.kill()
    assert await process.wait() == 137
    await harness.gone()


async def test_what_a_command_leaves_running_ends_with_it_as_in_a_container(harness: Harness) -> None:
    process = await harness.start("import subprocess; subprocess.Popen(['sleep', '600'])")
    assert await process.wait() == 0
    await harness.gone()


async def test_ctrl_c_in_the_terminal_does_not_reach_it(harness: Harness) -> None:
    process = await harness.start(WAITS)
    await harness.up()
    assert os.getpgid(process.pid) != os.getpgrp()
    assert os.getsid(process.pid) != os.getsid(0)
    process.kill()
    await process.wait()


async def test_a_killed_shim_takes_the_command_with_it(harness: Harness) -> None:
    process = await harness.start(DEAF)
    await harness.up()
    os.kill(process.pid, signal.SIGKILL)
    assert await process.wait() == 137
    await harness.gone()


RUNNER = """
import asyncio, pathlib, sys
from dtj.local.process import Process

async def main():
    log, code = pathlib.Path(sys.argv[1]), sys.argv[2]
    import os
    processes = [
        await Process.start([sys.executable, "-c", code], environment=dict(os.environ), log=log) for _ in range(3)
    ]
    await asyncio.gather(*(process.wait() for process in processes))

asyncio.run(main())
"""


@pytest.mark.parametrize("code", [DEAF, HAS_CHILDREN])
async def test_a_runner_that_is_killed_leaves_nothing_behind(harness: Harness, code: str) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(harness.log), code], env={**os.environ, MARK: harness.mark}
    )
    try:
        await harness.up(processes=3)
        assert len(marked_processes(harness.mark)) > 3
    finally:
        runner.kill()
        runner.wait()
    await harness.gone()


def test_the_tail_of_a_log_is_what_a_termination_message_holds(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert tail(log) == ""
    log.write_text("\n".join(f"line {number}" for number in range(1000)))
    lines = tail(log).splitlines()
    assert len(lines) == 80
    assert lines[-1] == "line 999"
    log.write_text("x" * 5000)
    assert len(tail(log)) == 2048
