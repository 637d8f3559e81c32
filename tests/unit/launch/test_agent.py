"""The launcher with programs that need no TensorFlow: codes, output, last words, signals, stacks. Real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from dtj_launch.errors import NO_RESTART_HELPS
from dtj_launch.output import TerminationMessage
from support.launched import LAUNCHER, SOURCE, Launch, Launched, cluster_of, state_of
from support.waiting import eventually_true


def python(code: str) -> tuple[str, str, str, str]:
    """`-- python -c CODE`."""
    return ("--", sys.executable, "-c", code)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--", "true"), 0),
        (("--", "sh", "-c", "exit 3"), 3),
        (("--map=3=75,4=0", "--", "sh", "-c", "exit 3"), 75),
        (("--", "sh", "-c", "kill -SEGV $$"), 139),
        (("--", "sh", "-c", "kill -KILL $$"), 137),
        (("--", "no-such-program"), 127),
        (("--", "/"), 126),
    ],
)
def test_the_exit_code_is_the_programs(launch: Launch, arguments: tuple[str, ...], code: int) -> None:
    assert launch(*arguments).wait() == code


@pytest.mark.parametrize(
    ("arguments", "environ", "words"),
    [
        ((), {}, "nothing to start: give `-- COMMAND...`, or `--module NAME -- ARGUMENTS...`"),
        (("--grace=soon", "--", "true"), {}, "--grace=soon: give a number of seconds above 0"),
        (("--start-timeout=0", "--", "true"), {}, "--start-timeout=0: give a number of seconds above 0"),
        (("--max-restarts-in-place=x", "--", "true"), {}, "--max-restarts-in-place=x: give a whole number of at least"),
        (("--preload=x", "--", "true"), {}, "--preload and --check are for Python modules: give --module, too"),
        (("--module=m", "--check=f", "--"), {}, "--check=f: give MODULE:FUNCTION"),
        (("--module=m", "--check=:f", "--"), {}, "--check=:f: give MODULE:FUNCTION"),
        (("--map=3", "--", "true"), {}, "--map=3: give pairs of exit codes such as 3=75, separated by commas"),
        (("--frobnicate", "--", "true"), {}, "unrecognized arguments: --frobnicate; what to start comes after --;"),
        (("python", "a.py", "--token=hidden"), {}, "unrecognized arguments: python --token; what to start comes after"),
        (("--", "true"), {"TF_CONFIG": "{"}, "TF_CONFIG={: not JSON"),
        (("--", "true"), {"DTJ_ATTEMPT": "x"}, "DTJ_ATTEMPT=x: not a whole number;"),
        (("--", "true"), {"DTJ_ATTEMPT": "²"}, "DTJ_ATTEMPT=²: not a whole number;"),
    ],
)
def test_bad_input_is_one_line_and_2(
    launch: Launch, arguments: tuple[str, ...], environ: dict[str, str], words: str
) -> None:
    launched = launch(*arguments, **environ)
    assert launched.wait() == 2
    assert launched.output.startswith(f"dtj-launch: {words}")
    assert launched.output.count("\n") == 1
    assert launched.last_words == f"{NO_RESTART_HELPS}\n{launched.output.removeprefix('dtj-launch: ')}"


def test_every_byte_comes_through_on_the_stream_that_it_was_written_to(launch: Launch, tmp_path: Path) -> None:
    printed = {kind: os.urandom(1_500_000) + kind.encode() for kind in ("out", "err")}
    for kind, content in printed.items():
        (tmp_path / f"given.{kind}").write_bytes(content)
    launched = launch("--", "sh", "-c", "cat given.err >&2 & cat given.out; wait")
    assert launched.wait() == 0
    assert launched.out.read_bytes() == printed["out"]
    assert launched.err.read_bytes() == printed["err"]


def test_one_file_for_both_streams_keeps_their_order(tmp_path: Path) -> None:
    both = f"import os, sys; os.dup2(1, 2); os.execv(sys.executable, [*{LAUNCHER!r}, *sys.argv[1:]])"
    shell = "for i in $(seq 300); do echo o$i; echo e$i >&2; done"
    launched = Launched(tmp_path, "both", ("--", "sh", "-c", shell), launcher=(sys.executable, "-c", both))
    assert launched.wait() == 0
    assert launched.out.read_text().split() == [f"{kind}{i}" for i in range(1, 301) for kind in "oe"]


def test_a_line_that_was_only_begun_is_shown_while_the_program_runs_on(launch: Launch) -> None:
    launched = launch(*python("import time; print('password: ', end='', flush=True); time.sleep(100)"))
    launched.wait_for("^password: $")


def test_the_last_words_are_the_programs_own_and_else_none_for_which_the_kubelet_takes_the_log(launch: Launch) -> None:
    happy = launch("--", "echo", "fine")
    wordless = launch("--", "sh", "-c", "echo a lot; exit 1")
    wordy = launch("--", "sh", "-c", 'echo a lot; echo my own > "$DTJ_TERMINATION_LOG"; exit 1')
    assert (happy.wait(), wordless.wait(), wordy.wait()) == (0, 1, 1)
    assert (happy.last_words, wordless.last_words, wordy.last_words) == ("", "", "my own\n")


LISTENING = """
import signal, sys, time
def tell(number, _):
    print("got", signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM: sys.exit(42)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, tell)
print("ready", flush=True)
while True: time.sleep(1)
"""


def test_signals_go_on_to_the_program_and_it_decides(launch: Launch) -> None:
    launched = launch(*python(LISTENING))
    launched.wait_for("ready")
    for name in ("SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTERM"):
        launched.send(getattr(signal, name))
        launched.wait_for(f"got {name}")
    assert launched.wait() == 42


def test_a_program_that_stays_is_killed_when_its_grace_is_over(launch: Launch) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(100)"
    launched = launch("--grace=0.3", *python(code))
    launched.wait_for("ready")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 137
    assert "still running 0.3 s after the request to stop (--grace): killing it" in launched.output


SAVING = """
import signal, sys, time
def save(*_):
    time.sleep(float(sys.argv[1]))
    print("saved", flush=True)
    sys.exit(int(sys.argv[2]))
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True: time.sleep(1)
"""


@pytest.mark.parametrize("shells", [1, 2])
@pytest.mark.parametrize(
    ("seconds", "own", "code"),
    [
        (0.5, 42, 42),
        (0.5, 0, 143),  # what the shell would have run after it has not run
        (100, 42, 137),
    ],
)
def test_what_a_shell_that_ends_at_once_has_started_may_still_save(
    launch: Launch, tmp_path: Path, shells: int, seconds: float, own: int, code: int
) -> None:
    (tmp_path / "train.py").write_text(SAVING)
    (tmp_path / "entrypoint.sh").write_text(f"{sys.executable} train.py {seconds} {own}\ntrue\n")
    shell = "sh entrypoint.sh; true" if shells == 2 else ". ./entrypoint.sh"
    launched = launch("--grace=5" if code != 137 else "--grace=0.5", "--", "sh", "-c", shell)
    launched.wait_for("ready")
    launched.send(signal.SIGTERM)
    assert launched.wait() == code
    assert ("saved" in launched.output) == (code != 137)


def test_a_program_that_answers_the_stop_signal_is_not_waited_for_as_a_shell_is(launch: Launch) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(100)"
    answers = "signal.signal(signal.SIGTERM, lambda *_: os._exit(143)); os.wait()"
    launched = launch(*python(f"import os, signal, time\nif os.fork(): {answers}\nelse: {deaf}"))
    launched.wait_for("ready")
    launched.send(signal.SIGTERM)
    assert launched.wait() == 143


LEAVING_A_FAMILY = """
import os, time
ours, theirs = os.pipe()
if (child := os.fork()) == 0: time.sleep(100)
if os.fork() == 0:
    os.setsid()
    if grandchild := os.fork():
        memory = bytes(os.urandom(1)) * 2**28  # so that its end takes a while
        print(child, os.getpid(), grandchild, flush=True)
        os.write(theirs, b"x")
    time.sleep(100)
os.read(ours, 1)
"""


def test_what_the_program_leaves_running_ends_with_it_in_whatever_session_and_so_do_its_children(
    launch: Launch,
) -> None:
    launched = launch(*python(LEAVING_A_FAMILY))
    assert launched.wait() == 0
    assert [state_of(int(left)) in ("", "Z") for left in launched.output.split()] == [True] * 3


def test_orphans_are_reaped_while_the_program_runs(launch: Launch) -> None:
    launched = launch("--", "sh", "-c", "(sleep 0.2 & echo $!) & wait; echo left; sleep 100")
    launched.wait_for("left")
    orphan = int(launched.out.read_text().split()[0])
    eventually_true(lambda: state_of(orphan) == "")


def test_the_program_ends_with_its_launcher_however_that_ends(launch: Launch) -> None:
    launched = launch(*python("import time; print('ready', flush=True); time.sleep(100)"))
    launched.wait_for("ready")
    (program,) = launched.children
    launched.send(signal.SIGKILL)
    eventually_true(lambda: state_of(program) in ("", "Z"))


def test_sigquit_prints_the_stacks_of_every_python_below_and_leaves_it_be(launch: Launch, tmp_path: Path) -> None:
    # A distribution's own sitecustomize still runs.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('customized', flush=True)")
    code = "import time\ndef here_i_am():\n    print('ready', flush=True)\n    time.sleep(100)\nhere_i_am()"
    (tmp_path / "program.py").write_text(code)
    shell = f"{sys.executable} program.py & wait; true"
    launched = launch("--", "sh", "-c", shell, PYTHONPATH=f"{tmp_path / 'site'}:{SOURCE}")
    launched.wait_for("ready")
    assert "customized" in launched.output
    for times in (1, 2):
        launched.send(signal.SIGQUIT)
        launched.wait_for('File ".*program.py", line 4 in here_i_am', times=times)


def test_sigquit_does_not_end_what_has_no_stacks_to_print(launch: Launch) -> None:
    launched = launch("--", "sh", "-c", "echo ready; sleep 100")
    launched.wait_for("ready")
    launched.send(signal.SIGQUIT)
    launched.wait_for("no Python runs here that would print its stacks")
    assert launched.process.poll() is None


def test_who_does_not_come_is_named_and_waited_for_no_longer_than_asked(launch: Launch) -> None:
    config = cluster_of(2)
    launched = launch("--start-timeout=0.5", "--", "true", TF_CONFIG=config[0])
    assert launched.wait() == 75
    assert "start gate: 1 of 1 peers missing after" in launched.last_words
    assert "worker 1 at 127.0.0.1:" in launched.last_words


def test_a_task_that_is_asked_to_stop_while_it_waits_stops_at_once(launch: Launch) -> None:
    launched = launch("--", "true", TF_CONFIG=cluster_of(2)[0])
    eventually_true(lambda: _catches_sigterm(launched.process.pid))
    launched.send(signal.SIGTERM)
    assert launched.wait() == 143


def test_a_copied_folder_is_all_it_needs(tmp_path: Path) -> None:
    shutil.copytree(SOURCE / "dtj_launch", tmp_path / "somewhere", ignore=shutil.ignore_patterns("__*__"))
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(SOURCE / "dtj_launch" / name, tmp_path / "somewhere")
    launched = Launched(
        tmp_path, "copied", ("--", "echo", "hello"), launcher=(sys.executable, "-I", "somewhere"), PYTHONPATH=""
    )
    assert launched.wait() == 0
    assert launched.output == "hello\n"


@pytest.mark.parametrize("document", ["launcher.md", "accelerators.md"])
def test_the_image_of_the_documents_has_the_launcher_and_its_callback(tmp_path: Path, document: str) -> None:
    text = (SOURCE.parent / "docs" / document).read_text()
    (copied,) = re.findall(r"^COPY --from=dtj-trainer \S*/dtj_launch /(\S+)$", text, re.MULTILINE)
    (paths,) = re.findall(r"^ENV PYTHONPATH=/(\S+)$", text, re.MULTILINE) or [""]
    (entry,) = re.findall(r"^ENTRYPOINT (.*dtj.launch.*)$", text, re.MULTILINE)
    shutil.copytree(SOURCE / "dtj_launch", tmp_path / copied)
    (tmp_path / "train.py").write_text("from dtj_launch.progress import DTJCallback\nprint(DTJCallback.__name__)\n")
    _, *arguments = json.loads(entry.replace('"/opt', f'"{tmp_path}/opt'))
    launched = Launched(tmp_path, "image", arguments, launcher=(sys.executable,), PYTHONPATH=str(tmp_path / paths))
    assert (launched.wait(), launched.output) == (0, "DTJCallback\n")


def _catches_sigterm(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ('a line\n{"corrupt": {"step": 3}}\n', {"step": 3}),
        ('{"corrupt": [3]}', {}),
        ('{"progress": {}}', {}),
        ("3", {}),
        ("a line", {}),
        ("", {}),
    ],
)
def test_only_an_object_in_the_last_line_of_the_last_words_says_that_replicas_differ(
    tmp_path: Path, words: str, found: dict[str, int]
) -> None:
    (tmp_path / "words").write_text(words)
    assert TerminationMessage(str(tmp_path / "words")).corrupt == found
    assert TerminationMessage(str(tmp_path / "none")).corrupt == {}


@pytest.mark.parametrize("letter", ["x", "ü", "語"])
def test_words_that_are_too_long_keep_their_beginning(tmp_path: Path, letter: str) -> None:
    path = tmp_path / "words"
    TerminationMessage(str(path)).leave(f"{NO_RESTART_HELPS}\n{5000 * letter}")
    assert 4090 < path.stat().st_size <= 4096
    assert path.read_text().startswith(f"{NO_RESTART_HELPS}\n{letter}")
    assert path.read_text().endswith(f"{letter}\n")
