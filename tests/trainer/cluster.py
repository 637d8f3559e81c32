"""Real trainer processes on loopback ports, one for each task of a job, as the operator would start them.

Everything that is started is killed when the context ends, and on failure all logs are printed.
"""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dtj_launch.errors import NO_RESTART_HELPS
from forks import Forked
from loopback import free_ports
from patience import PATIENCE_SECONDS
from trainer import fork_server

SOURCE = Path(__file__).resolve().parents[2] / "trainer-image"
PATH = f"{SOURCE}:{Path(__file__).resolve().with_name('hooks')}"
"""What Python finds: the trainer, and what lets a training wait for a test."""
TRAINER = ("-m", fork_server.MODULE)
"""What a task's Python runs."""
DEADLINE = PATIENCE_SECONDS
"""Seconds in which anything must be done."""

START_TIMEOUT = DEADLINE - 60
"""Seconds that the start gate waits for peers; a job that begins to wait for them may still end before the deadline."""

SOON = START_TIMEOUT - 60
"""Seconds in which an end comes that nobody has to wait for: before the start gate's patience ends."""

NO_EXPORT = {"DTJ_EXPORT_DIR": ""}
"""For tests of the training alone: a SavedModel costs a quarter of the CPU time of a short job."""

ROLES: Mapping[str, Mapping[str, int]] = {
    "MultiWorkerMirrored": {"worker": 2},
    "Pipeline": {"worker": 2},
    "ParameterServer": {"chief": 1, "worker": 1, "ps": 1},
}
"""The tasks of a job of these strategies that does not say which; of any other it has one."""

_FOUND = dict(os.environ)
"""This process's environment before a test imports TensorFlow here, which adds to it."""


class Replica:
    """One running task."""

    def __init__(
        self,
        name: str,
        *,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        folder: Path,
        program: Sequence[str] = TRAINER,
        plain: bool = False,
        imported: bool = False,
    ) -> None:
        """Args:
        plain: a start as in a pod; else it is forked where there is a server for that, and it gives the same.
        imported: a script may find TensorFlow and Keras imported, so it is forked, too.
        """
        self.name = name
        self.folder = folder
        self._log = folder / f"{name}.log"
        environ = {**inherited(), "DTJ_TERMINATION_LOG": str(folder / f"{name}.termination"), **environ}
        module, options = (program[1], program[2:]) if program[0] == "-m" else ("", ())
        server = None if plain else fork_server.current.get(module)
        self.process: subprocess.Popen[bytes] | Forked
        if server is not None and server.fits(arguments, environ, imported=imported):
            self.process = server.start(arguments, environ, folder=folder, log=self._log, options=options)
            return
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program, *arguments],
                env=environ,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        """Its output so far, over all its starts."""
        return self._log.read_text()

    @property
    def last_words(self) -> str:
        """Its termination message, without the line that no restart can help."""
        return self._termination.removeprefix(f"{NO_RESTART_HELPS}\n")

    @property
    def restart_may_help(self) -> bool:
        """Whether its termination message does not say that no restart can help."""
        return not self._termination.startswith(f"{NO_RESTART_HELPS}\n")

    @property
    def _termination(self) -> str:
        return (self.folder / f"{self.name}.termination").read_text().strip()

    @property
    def own_memory(self) -> int:
        """Bytes in memory that no file backs."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None, status
        return int(found[1]) * 1024

    def wait(self, timeout: float = DEADLINE) -> int:
        """The exit code, once it has ended."""
        return self.process.wait(timeout)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def wait_for(self, pattern: str, timeout: float = DEADLINE, *, since: int = 0) -> re.Match[str]:
        """Waits until its log has a match, after so many characters."""
        until = time.monotonic() + timeout
        while (match := re.search(pattern, self.log[since:])) is None:
            ended = self.process.poll()
            assert ended is None or re.search(pattern, self.log[since:]), (
                f"{self.name} ended with {ended} before {pattern!r}: {self.log[-1500:]}"
            )
            assert time.monotonic() < until, f"{self.name} did not say {pattern!r} in {timeout} s"
            time.sleep(0.02)
        return match


class Job:
    """The tasks of one job, with a directory each for checkpoints, export and logs."""

    def __init__(
        self,
        folder: Path,
        *,
        strategy: str = "OneDevice",
        roles: Mapping[str, int] | None = None,
        arguments: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
        script: str = "",
        program: Sequence[str] = TRAINER,
        plain: bool = False,
        imported: bool = False,
        exports: bool = True,
        patient: bool = False,
    ) -> None:
        """Args:
        roles: role -> replicas, if others than ROLES; the evaluator appears in nobody's cluster.
        files: name -> text, of what a user has put into the folder.
        script: the text of a script that all tasks run, as train.py in the folder.
        program: what each task's Python runs, before the arguments.
        plain: whether each task is started as in a pod, and never forked.
        imported: whether a script may find TensorFlow and Keras imported, as it does not in a pod. Saves 4 CPU seconds
            for each start; not for tests of the start itself.
        exports: whether the trained model is exported; see NO_EXPORT.
        patient: whether nothing is taken for a stall before there is a file "stalls" in the folder.
        """
        roles = roles or ROLES.get(strategy, {"worker": 1})
        self.program = program
        self.plain = plain
        self.imported = imported
        self.exports = exports
        self.patient = patient
        self.folder = folder
        self.strategy = strategy
        self.arguments = [f"--progress-every={0.2}", f"--start-timeout={START_TIMEOUT:.0f}", *arguments]
        ports = iter(free_ports(sum(roles.values())))
        self.cluster = {
            role: [f"127.0.0.1:{next(ports)}" for _ in range(count)]
            for role, count in roles.items()
            if role != "evaluator"
        }
        self.tasks = [(role, index) for role, count in roles.items() for index in range(count)]
        self.leader = "chief-0" if "chief" in roles else "worker-0"
        self.replicas: dict[str, Replica] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if script:
            self.arguments.insert(0, "--script=train.py")
        for name, text in {**(files or {}), **({"train.py": script} if script else {})}.items():
            (folder / name).write_text(textwrap.dedent(text))

    def start(self, *names: str, arguments: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Self:
        """Starts all tasks, or those named, such as `worker-1`."""
        for role, index in self.tasks:
            name = f"{role}-{index}"
            if names and name not in names:
                continue
            self.replicas[name] = Replica(
                name,
                arguments=[*self.arguments, *arguments],
                environ={**self.environ(role, index), **(environ or {})},
                folder=self.folder,
                program=self.program,
                plain=self.plain,
                imported=self.imported,
            )
        return self

    def environ(self, role: str, index: int) -> dict[str, str]:
        """What the operator sets for a task."""
        return {
            "TF_CONFIG": json.dumps({"cluster": self.cluster, "task": {"type": role, "index": index}}),
            "DTJ_JOB_NAME": self.folder.name,
            "DTJ_STRATEGY": self.strategy,
            "DTJ_ROLE": role,
            "DTJ_INDEX": str(index),
            "DTJ_ATTEMPT": "0",
            "DTJ_CHECKPOINT_DIR": str(self.checkpoints),
            "DTJ_EXPORT_DIR": str(self.folder / "export"),
            "DTJ_LOG_DIR": str(self.folder / "logs"),
            "TEST_HOLD": str(self._hold),
            **({"TEST_STALLS": str(self.folder / "stalls")} if self.patient else {}),
            **({} if self.exports else NO_EXPORT),
        }

    @property
    def checkpoints(self) -> Path:
        """The directory that all tasks share."""
        return self.folder / "checkpoints"

    def wait_for_checkpoint(self, step: int, timeout: float = DEADLINE) -> None:
        """Waits until this step, or a later one, is saved."""
        until = time.monotonic() + timeout
        while not any(int(path.stem[5:]) >= step for path in self.checkpoints.glob("ckpt-*.index")):
            running = [name for name, replica in self.replicas.items() if replica.process.poll() is None]
            assert running, f"all tasks ended before step {step} was saved"
            assert time.monotonic() < until, f"step {step} was not saved in {timeout} s"
            time.sleep(0.01)

    def hold_at(self, step: int) -> None:
        """Lets the training wait when it has saved this step, or a later one, until it may go on or is killed."""
        draft = self.folder / "hold.draft"
        draft.write_text(str(step))
        draft.rename(self._hold)

    def let_go(self) -> None:
        """Lets the training go on."""
        self._hold.unlink()

    @property
    def _hold(self) -> Path:
        return self.folder / "hold"

    @property
    def newest_checkpoint(self) -> int:
        """The step of the newest checkpoint that is complete."""
        return max(int(path.stem.removeprefix("ckpt-")) for path in self.checkpoints.glob("ckpt-*.index"))

    @property
    def result(self) -> dict[str, Any]:
        """result.json."""
        values: dict[str, Any] = json.loads((self.folder / "logs" / "result.json").read_text())
        return values

    def __getitem__(self, name: str) -> Replica:
        return self.replicas[name]

    @property
    def ending(self) -> list[Replica]:
        """The tasks that end by themselves."""
        serves = self.strategy in ("ParameterServer", "Pipeline")
        return [one for name, one in self.replicas.items() if name == self.leader or not serves]

    def wait(self, timeout: float = DEADLINE) -> dict[str, int]:
        """Exit codes by name, once all tasks have ended."""
        until = time.monotonic() + timeout
        return {name: replica.wait(max(0.1, until - time.monotonic())) for name, replica in self.replicas.items()}

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to every task that still runs. No task sees another one end before it is killed itself."""
        running = [replica for replica in self.replicas.values() if replica.process.poll() is None]
        for replica in running if number == signal.SIGKILL else ():
            replica.kill(signal.SIGSTOP)
        for replica in running:
            replica.kill(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # A stopped process takes SIGKILL all the same, so nothing can stay behind.
        self.kill()
        for replica in self.replicas.values():
            replica.process.wait()
        if kind is not None:
            for name, replica in self.replicas.items():
                print(f"--- {name} (exit code {replica.process.returncode})\n{replica.log}")


TWO_DEVICES = """
import contextlib, keras, numpy as np, tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
"""
"""What a script begins with that makes a MirroredStrategy of two replicas."""


def ran(folder: Path, *, code: int = 0, environ: Mapping[str, str] | None = None, **options: Any) -> Job:
    """A job that has ended: all tasks that end by themselves did so with this code.

    Args:
        options: of the job.
    """
    with Job(folder, **options) as job:
        job.start(environ=environ)
        assert {one.name: one.wait() for one in job.ending} == {one.name: code for one in job.ending}
    return job


def refused(folder: Path, *arguments: str, restart_may_help: bool = False, **environ: str) -> str:
    """The one line of a run that must be refused with 2, before TensorFlow is imported.

    Args:
        restart_may_help: whether it is not said that no restart can help.
    """
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dtj_trainer", *arguments],
        env={**inherited(), **environ, "DTJ_TERMINATION_LOG": str(folder / "last words")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    printed = [line for line in ended.stderr.splitlines() if not line.startswith("import time:")]
    assert ended.returncode == 2, ended.stderr
    assert len(printed) == 1
    assert "| tensorflow" not in ended.stderr
    words = [] if restart_may_help else [NO_RESTART_HELPS]
    assert (folder / "last words").read_text().splitlines() == [*words, printed[0].removeprefix("dtj_trainer: ")]
    return printed[0]


def run_interrupted_twice(job: Job, *, total: int = 90) -> None:
    """Runs workers to the end: one is asked to stop after step 20, and all are killed 40 steps before the last one."""
    job.hold_at(20)
    job.start().wait_for_checkpoint(20)
    next(reversed(job.replicas.values())).kill(signal.SIGTERM)
    job.hold_at(total - 40)
    assert set(job.wait().values()) == {42}
    found = [
        re.match(rf"preempted: all tasks saved step (\d+) of {total}; ", one.last_words)
        for one in job.replicas.values()
    ]
    assert all(found)
    (step,) = {int(each[1]) for each in found if each}  # the same on each
    assert job.newest_checkpoint == step

    job.start().wait_for_checkpoint(total - 40)
    job.kill()
    job.let_go()
    assert set(job.wait().values()) == {-signal.SIGKILL}
    job[job.leader].wait_for(f"resumed: step {step} ")

    assert set(job.start().wait().values()) == {0}


def inherited() -> dict[str, str]:
    """This process's environment without a trace of a job or of pytest, with the trainer's source."""
    kept = {name: value for name, value in _FOUND.items() if not name.startswith(("DTJ_", "TF_CONFIG", "PYTEST_"))}
    # Without a seed, the launcher begins anew as the command that Python was started by: a fork of it cannot.
    return {"PYTHONHASHSEED": "0", **kept, "PYTHONPATH": PATH, "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def stopped(replica: Replica) -> Iterator[None]:
    """Freezes a task: to its peers, a network that swallows everything."""
    replica.kill(signal.SIGSTOP)
    try:
        yield
    finally:
        replica.kill(signal.SIGCONT)


def image_entrypoint(*options: str) -> list[str]:
    """What a task's Python runs in the image: the launcher, as the Dockerfile starts it, with more options."""
    (line,) = [line for line in (SOURCE / "Dockerfile").read_text().splitlines() if line.startswith("ENTRYPOINT ")]
    program, *own, last = json.loads(line.partition(" ")[2])
    assert (program, last) == ("dtj-launch", "--")
    return ["-m", "dtj_launch", *own, *options, last]


def launched_once() -> list[str]:
    """The same for a task that may get stuck as a whole, which the launcher ends, and that is not started again."""
    return image_entrypoint("--max-restarts-in-place=0")
