"""``dtj run`` as a person meets it: what it prints, how it ends, and what it leaves."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import yaml

from builders import manifest
from dtj.api.json import JsonObject
from dtj.cli.main import cli
from dtj.local import machine, run_directory
from dtj.local.run_directory import RunDirectory
from patience import PATIENCE_SECONDS
from support.launched import SOURCE
from support.local_runs import LocalCommand, fake_trainer, marked_processes, python_job, write
from support.waiting import eventually, eventually_true

WAITS = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
SAVES = (
    "import os, signal, sys, time\n"
    "def save(*_):\n"
    "    print('saved', flush=True)\n"
    "    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save)\n"
    "print('up', flush=True)\n"
    "time.sleep(600)"
)


class CommandLine(LocalCommand):
    """With an interpreter that passes for the trainer's."""

    def __init__(self, folder: Path) -> None:
        self.trainer = fake_trainer(folder)
        super().__init__(folder, self.trainer, COLUMNS="200")

    def job(self, code: str, **arguments: object) -> JsonObject:
        return python_job(code, mark=self.mark, **arguments)  # type: ignore[arg-type]

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """To its end."""
        started = self.start(*arguments)
        output, errors = started.communicate(timeout=PATIENCE_SECONDS)
        return subprocess.CompletedProcess(started.args, started.returncode, output, errors)

    def wait_until_up(self) -> None:
        """Wait until both replicas have printed it."""

        def up() -> None:
            logs = list(self.latest().glob("logs/worker-*.log"))
            assert sum("up" in log.read_text() for log in logs) == 2

        eventually(up)

    def saved(self) -> int:
        """How many replicas have saved before they ended."""
        return sum("saved" in log.read_text() for log in self.latest().glob("logs/worker-*.log"))


@pytest.fixture
def dtj(tmp_path: Path) -> Iterator[CommandLine]:
    with CommandLine(tmp_path) as command_line:
        yield command_line


def test_a_run_that_succeeds_prints_a_line_a_change_and_what_to_type_next(dtj: CommandLine) -> None:
    done = dtj.run(write(dtj.folder, dtj.job("print('hello')")).name)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"tiny: MultiWorkerMirrored with 2 workers, in dtj-runs/tiny/\d{8}-\d{6}", lines[0])
    assert lines[1] == "Image example/tiny:1 is not pulled: the command runs with trainer/bin/python."
    assert re.fullmatch(r"To follow the logs, .*: tail -f dtj-runs/tiny/latest/logs/\*-\*\.log", lines[2])
    assert re.search(r"^ +\d+s  worker-0.*: Succeeded$", done.stdout, re.MULTILINE)
    assert re.search(r"^tiny succeeded after \d+s$", done.stdout, re.MULTILINE)
    assert "kubectl apply -f job.yaml" in lines[-1]
    assert "\x1b" not in done.stdout
    assert yaml.safe_load((dtj.latest() / "manifest.yaml").read_text())["metadata"]["name"] == "tiny"
    assert "created 2 pods" in (dtj.latest() / "logs" / "dtj.log").read_text()


def test_without_a_file_the_manifest_of_this_folder_runs(dtj: CommandLine) -> None:
    write(dtj.folder, dtj.job("print('hello')"))
    done = dtj.run()
    assert done.returncode == 0, done.stderr
    assert "tiny succeeded" in done.stdout


def test_a_run_that_fails_names_the_replica_its_code_and_its_last_line(dtj: CommandLine) -> None:
    code = "import os, sys, time; os.environ['DTJ_INDEX'] == '1' and (print('boom'), sys.exit(3)); time.sleep(600)"
    done = dtj.run(write(dtj.folder, dtj.job(code)))
    assert done.returncode == 1
    assert "  cause        worker-1 exited with code 3\n               boom\n" in done.stdout
    assert re.search(r"  its log      dtj-runs/tiny/[-\d]+/logs/worker-1\.log\n", done.stdout)
    decisions = (dtj.latest() / "logs" / "dtj.log").read_text()
    ended = re.search(r"is Failed, was (Starting|Running) \(ReplicaFailed\)\n", decisions)
    assert ended, "no limit was reached: the manifest has none"
    assert marked_processes(dtj.mark) == []


def test_a_trainer_that_refuses_its_arguments_ends_the_run_as_bad_input(dtj: CommandLine) -> None:
    variable: JsonObject = {"name": "PYTHONPATH", "value": str(SOURCE)}
    container: JsonObject = {"name": "trainer", "image": "i", "args": ["--epochz=3"], "env": [variable]}
    done = dtj.run(write(dtj.folder, manifest("tiny", template={"spec": {"containers": [container]}})))
    assert done.returncode == 2, done.stdout
    assert "               unrecognized arguments: --epochz; see --help\n" in done.stdout


def test_a_program_of_the_users_own_that_exits_with_2_has_failed(dtj: CommandLine) -> None:
    done = dtj.run(write(dtj.folder, dtj.job("import sys; print('no such table'); sys.exit(2)")))
    assert done.returncode == 1
    assert "               no such table\n" in done.stdout


def test_several_documents_run_in_order_up_to_the_first_that_fails(dtj: CommandLine) -> None:
    jobs = [dtj.job("pass", name="a"), dtj.job("raise SystemExit(7)", name="b"), dtj.job("pass", name="c")]
    done = dtj.run(write(dtj.folder, *jobs))
    assert done.returncode == 1
    ends = re.findall(r"^(a|b|c) (succeeded|failed)", done.stdout, re.MULTILINE)
    assert ends == [("a", "succeeded"), ("b", "failed")]
    assert done.stdout.endswith("Not run: c.\n")


def test_what_only_a_cluster_has_is_bad_input_on_this_machine(dtj: CommandLine) -> None:
    variable: JsonObject = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    container: JsonObject = {"name": "trainer", "image": "i", "command": ["true"], "env": [variable]}
    done = dtj.run(write(dtj.folder, manifest("tiny", template={"spec": {"containers": [container]}})))
    assert done.returncode == 2
    assert done.stderr == (
        f"{dtj.folder}/job.yaml: tiny: spec.containers[0].env[0].valueFrom: TOKEN comes from the cluster, "
        "and there is none on this machine: export TOKEN before the run\n"
    )
    assert not (dtj.folder / "dtj-runs").exists()


def test_parts_of_the_manifest_without_a_meaning_here_are_named(dtj: CommandLine) -> None:
    container: JsonObject = {"name": "trainer", "image": "i", "command": ["true"]}
    template: JsonObject = {
        "spec": {
            "containers": [container, {"name": "shipper", "image": "i"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        }
    }
    done = dtj.run(write(dtj.folder, manifest("tiny", template=template, accelerator={"profile": "nvidia"})))
    assert done.returncode == 0
    assert "Ignored on this machine: sidecar shipper and volume data.\n" in done.stdout
    assert "Accelerators are not allocated: TensorFlow uses the GPUs or TPUs that it finds" in done.stdout


def test_a_timeout_stops_the_job_with_a_code_of_its_own(dtj: CommandLine) -> None:
    done = dtj.run(write(dtj.folder, dtj.job(WAITS)), "--timeout", "0.5")
    assert done.returncode == 3
    assert "The --timeout has expired: the processes save a checkpoint and end.\n" in done.stdout
    assert "tiny stopped after" in done.stdout
    assert marked_processes(dtj.mark) == []


def test_ctrl_c_stops_the_processes_and_says_how_to_go_on(dtj: CommandLine) -> None:
    needed = ("--trainer-python", str(dtj.trainer), "--ignore-memory")
    running = dtj.start(*needed, "--timeout=1h", write(dtj.folder, dtj.job(WAITS)).name)
    dtj.wait_until_up()
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 130
    assert "Stopping: the processes save a checkpoint and end. Press Ctrl-C again to kill them.\n" in output
    commands = output.partition("\nNext\n")[2]
    assert f"run {' '.join(needed)} job.yaml" in commands
    assert "# run it from the start: it has written no checkpoint\n" in commands
    assert errors == ""
    assert marked_processes(dtj.mark) == []


def test_a_second_ctrl_c_kills_processes_that_do_not_end(dtj: CommandLine) -> None:
    running = dtj.start(write(dtj.folder, dtj.job(DEAF, grace_seconds=600)))
    dtj.wait_until_up()
    running.send_signal(signal.SIGINT)
    assert running.stdout is not None
    while "Stopping" not in running.stdout.readline():
        continue
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 130
    assert "Killing the processes.\n" in output
    assert marked_processes(dtj.mark) == []


def test_a_run_under_nohup_outlives_its_terminal(dtj: CommandLine) -> None:
    running = dtj.start(write(dtj.folder, dtj.job(WAITS)), by=("nohup",))
    dtj.wait_until_up()
    status = Path("/proc", str(running.pid), "status").read_text()
    (ignored,) = re.findall(r"^SigIgn:\s+([0-9a-f]+)$", status, re.MULTILINE)
    assert int(ignored, 16) & 1 << signal.SIGHUP - 1
    running.terminate()
    running.communicate(timeout=PATIENCE_SECONDS)
    assert running.returncode == 143
    assert marked_processes(dtj.mark) == []


def test_a_run_whose_reader_goes_away_stops_as_any_other(dtj: CommandLine) -> None:
    """As `dtj run job.yaml | tee log` does: Ctrl-C ends tee too."""
    running = dtj.start(write(dtj.folder, dtj.job(SAVES, grace_seconds=60)))
    dtj.wait_until_up()
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=PATIENCE_SECONDS) == 130
    assert running.stderr.read() == ""
    assert dtj.saved() == 2
    assert marked_processes(dtj.mark) == []


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_run_whose_terminal_is_closed_saves_before_it_ends(
    dtj: CommandLine, terminal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", terminal)
    ours, theirs = pty.openpty()
    running = dtj.start(write(dtj.folder, dtj.job(SAVES, grace_seconds=60)), output=theirs)
    os.close(theirs)
    dtj.wait_until_up()
    os.close(ours)
    running.send_signal(signal.SIGHUP)
    assert running.wait(timeout=PATIENCE_SECONDS) == 128 + signal.SIGHUP
    assert dtj.saved() == 2
    assert marked_processes(dtj.mark) == []


def test_a_run_that_is_told_twice_that_its_terminal_is_closed_saves_before_it_ends(dtj: CommandLine) -> None:
    """An interactive shell tells its jobs, and when it has ended, the kernel tells those in the foreground."""
    saving, end = dtj.folder / "saving", dtj.folder / "end"
    waits = f"open({str(saving)!r}, 'w')\n    while not os.path.exists({str(end)!r}): time.sleep(0.05)\n"
    code = SAVES.replace("    print('saved'", f"    {waits}    print('saved'")
    running = dtj.start(write(dtj.folder, dtj.job(code, grace_seconds=60)))
    dtj.wait_until_up()
    running.send_signal(signal.SIGHUP)
    eventually_true(saving.exists)
    running.send_signal(signal.SIGHUP)
    end.touch()
    output, _ = running.communicate(timeout=PATIENCE_SECONDS)
    assert "Killing" not in output
    assert running.returncode == 128 + signal.SIGHUP
    assert dtj.saved() == 2


def test_a_run_that_can_print_nothing_goes_on_to_its_end(dtj: CommandLine) -> None:
    with Path("/dev/full").open("w") as full:
        running = dtj.start(write(dtj.folder, dtj.job("pass")), output=full.fileno())
    assert running.wait(timeout=PATIENCE_SECONDS) == 0
    objects = (dtj.latest() / "objects.json").read_text()
    assert "Succeeded" in objects


def test_a_run_whose_reader_goes_away_goes_on_and_notes_it_in_its_log(dtj: CommandLine) -> None:
    leave = dtj.folder / "leave"
    code = f"import os, time\nprint('up', flush=True)\nwhile not os.path.exists({str(leave)!r}): time.sleep(0.05)"
    running = dtj.start(write(dtj.folder, dtj.job(code)))
    dtj.wait_until_up()
    assert running.stdout is not None
    running.stdout.close()
    leave.touch()
    assert running.wait(timeout=PATIENCE_SECONDS) == 0
    notes = re.findall("<stdout> cannot be written.*", (dtj.latest() / "logs/dtj.log").read_text())
    assert notes == ["<stdout> cannot be written, and gets no more: Broken pipe"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_whose_output_nobody_reads_stops_its_processes_when_it_is_asked_to(
    dtj: CommandLine, number: signal.Signals
) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with suppress(BlockingIOError):
        while os.write(theirs, b"." * 1024):
            continue
    os.set_blocking(theirs, True)
    running = dtj.start(write(dtj.folder, dtj.job(SAVES, grace_seconds=60)), output=theirs)
    os.close(theirs)
    dtj.wait_until_up()
    running.send_signal(number)
    eventually_true(lambda: dtj.saved() == 2)
    assert b"stopped after" in read_all(ours)
    assert running.wait(timeout=PATIENCE_SECONDS) == 128 + number
    assert marked_processes(dtj.mark) == []


def read_all(terminal: int) -> bytes:
    """What is written to a terminal, or a pipe, until nobody has it open."""
    shown = b""
    try:
        while chunk := os.read(terminal, 65_536):
            shown += chunk
    except OSError:
        pass  # on Linux, this is how a closed other side shows
    finally:
        os.close(terminal)
    return shown


def shown_on_a_terminal(dtj: CommandLine) -> bytes:
    """What a run that succeeds writes to its terminal."""
    ours, theirs = pty.openpty()
    running = dtj.start(write(dtj.folder, dtj.job("pass")), output=theirs)
    os.close(theirs)
    shown = read_all(ours)
    assert running.wait(timeout=PATIENCE_SECONDS) == 0
    return shown


def test_a_terminal_gets_a_table_that_is_drawn_in_place(dtj: CommandLine) -> None:
    shown = shown_on_a_terminal(dtj)
    assert b"Replica" in shown
    assert b"\x1b[" in shown
    assert b"succeeded" in shown


def test_with_no_color_a_terminal_gets_plain_lines(dtj: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown = shown_on_a_terminal(dtj)
    assert b"Succeeded" in shown
    assert b"\x1b" not in shown


def test_a_pipe_gets_lines_also_with_force_color(dtj: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = dtj.run(write(dtj.folder, dtj.job("pass")))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


def test_resume_goes_on_in_the_latest_runs_folder(dtj: CommandLine) -> None:
    code = (
        "import os, pathlib\n"
        "place = pathlib.Path(os.environ['DTJ_CHECKPOINT_DIR'])\n"
        "print(len(list(place.iterdir())))\n"
        "(place / str(len(list(place.iterdir())))).touch()\n"
    )
    file = write(dtj.folder, dtj.job(code, roles={"worker": 1}))
    for expected in (["0"], ["0", "1"]):
        done = dtj.run(file, "--resume")
        assert done.returncode == 0
        assert ("There is no earlier run to resume: this is the first.\n" in done.stdout) == (expected == ["0"])
        assert (dtj.latest() / "logs/worker-0.log").read_text().split() == expected
    assert dtj.run(file).returncode == 0
    assert (dtj.latest() / "logs/worker-0.log").read_text().split() == ["0"]
    assert len(list((dtj.folder / "dtj-runs/tiny").iterdir())) == 3, "two runs and the link"


def test_a_resume_that_another_process_was_ahead_of_changes_nothing_in_the_folder(
    dtj: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other process begins between the search for the run and the start of it."""
    file = write(dtj.folder, dtj.job("pass", roles={"worker": 1}))
    assert dtj.run(file).returncode == 0
    folder = dtj.latest().resolve()
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    search = run_directory.latest
    with ExitStack() as other:

        def search_too_late(runs: Path, *, job: str) -> RunDirectory | None:
            found = search(runs, job=job)
            other.enter_context(RunDirectory(folder).locked())
            return found

        monkeypatch.setattr(run_directory, "latest", search_too_late)
        monkeypatch.setenv("DTJ_TRAINER_PYTHON", str(dtj.trainer))
        monkeypatch.chdir(dtj.folder)
        write(dtj.folder, dtj.job("print('another')", roles={"worker": 1}))
        assert cli(["run", str(file), "--resume"], standalone_mode=False) == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert capsys.readouterr().err == (
        f"--resume: {folder} is still running: wait for its end, or stop it with Ctrl-C\n"
    )


@pytest.mark.parametrize("place", ["job.yaml", "/proc/dtj-runs"])
def test_a_place_that_cannot_be_written_is_one_line(dtj: CommandLine, place: str) -> None:
    done = dtj.run(write(dtj.folder, dtj.job("pass")), "--output-dir", place)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"\S+: cannot be written: [\w ]+; choose another folder with --output-dir\n", done.stderr)


def test_a_folder_whose_name_is_not_utf_8_takes_no_runs_but_may_start_them(
    dtj: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = dtj.folder / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    write(folder, dtj.job("pass"))
    monkeypatch.setenv("DTJ_TRAINER_PYTHON", str(dtj.trainer))
    monkeypatch.chdir(folder)
    assert cli.main(["run"], prog_name="dtj", standalone_mode=False) == 2
    assert capsys.readouterr().err == (
        f"{dtj.folder}/caf\ufffd/dtj-runs: its name is not UTF-8; choose another folder with --output-dir\n"
    )
    assert list(folder.iterdir()) == [folder / "job.yaml"]
    runs = ["--output-dir", str(dtj.folder / "dtj-runs")]
    assert cli.main(["run", *runs], prog_name="dtj", standalone_mode=False) == 0
    assert "caf\ufffd" in (dtj.latest() / "record.json").read_text()


@pytest.mark.parametrize("path", ["nowhere/python", "~nobody-of-this-name/python"])
def test_a_missing_trainer_is_one_line(dtj: CommandLine, path: str) -> None:
    done = dtj.run(write(dtj.folder, dtj.job("pass")), "--trainer-python", path)
    assert done.returncode == 2
    assert done.stderr == f"--trainer-python: no Python at {path}; name the python of the trainer's environment\n"


def test_too_little_memory_is_one_line_that_can_be_overruled(
    dtj: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "_machine_memory", lambda proc: iter([100 * machine.MIB]))
    monkeypatch.setenv("DTJ_TRAINER_PYTHON", str(dtj.trainer))
    monkeypatch.chdir(dtj.folder)
    file = write(dtj.folder, dtj.job("pass"))
    assert cli.main(["run", str(file)], standalone_mode=False) == 2
    assert capsys.readouterr().err == (
        f"{file}: tiny: about 1400 MiB of memory are needed, 100 MiB are free: use fewer replicas, or --ignore-memory\n"
    )
    assert cli.main(["run", str(file), "--ignore-memory"], standalone_mode=False) == 0


def test_a_job_whose_addresses_are_in_a_config_map_on_a_cluster_is_one_for_this_machine_too(
    dtj: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "_machine_memory", lambda proc: iter([100 * machine.MIB]))
    monkeypatch.setenv("DTJ_TRAINER_PYTHON", str(dtj.trainer))
    monkeypatch.chdir(dtj.folder)
    container: JsonObject = {"name": "trainer", "image": "i", "command": ["true"]}
    file = write(dtj.folder, manifest("tiny", roles={"worker": 64}, template={"spec": {"containers": [container]}}))
    assert cli.main(["run", str(file)], standalone_mode=False) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("use fewer replicas, or --ignore-memory"), "all but the memory is here"
