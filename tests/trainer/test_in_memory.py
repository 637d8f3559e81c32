"""Checkpoints in memory: a job without a volume that loses a process, a pod or a copy ends with the same bits."""

import json
import os
import re
import shutil
import signal
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from log_lines import log_lines
from loopback import free_ports
from support.waiting import eventually_true
from trainer.cluster import DEADLINE, SOON, Job, image_entrypoint
from trainer.conftest import SHORT
from trainer.outcome import cut, flip, tensors
from trainer.test_launcher import lose_pod, start
from trainer.test_session import EXAMPLE

STRATEGY = "MultiWorkerMirrored"
ARGUMENTS = SHORT[:3]
"""SHORT without what it says of checkpoints."""
NO_VOLUME = {"DTJ_CHECKPOINT_DIR": ""}
WORKERS = ("worker-0", "worker-1")
SESSION = {"arguments": (f"--script={EXAMPLE}", "--", "--steps=100"), "imported": True}


class MemoryJob(Job):
    """A job whose workers keep a copy after every 10 steps, as the operator asks them to."""

    every_steps = "10"

    def environ(self, role: str, index: int) -> dict[str, str]:
        """What the operator sets for a task."""
        return {
            **super().environ(role, index),
            "DTJ_CHECKPOINT_MEMORY_DIR": str(self.memory(f"{role}-{index}")),
            "DTJ_CHECKPOINT_MEMORY_EVERY_STEPS": self.every_steps,
        }

    def memory(self, name: str) -> Path:
        """The memory of a pod."""
        return self.folder / "memory" / name

    def lose_memory(self, *names: str) -> None:
        """What becomes of the memory of pods that are deleted."""
        for name in names:
            shutil.rmtree(self.memory(name))

    def wait_for_copies(self, step: int) -> None:
        """Waits until each worker has written this step."""
        eventually_true(lambda: all((self.memory(n) / f"ckpt-{step}.index").exists() for n in self.replicas))

    def copies(self, name: str) -> list[int]:
        """The steps that a worker has."""
        return sorted(int(path.stem[5:]) for path in self.memory(name).glob("ckpt-*.index"))


@contextmanager
def two_workers(folder: Path, **options: Any) -> Iterator[MemoryJob]:
    """Two workers that keep their checkpoints in memory alone."""
    with MemoryJob(folder, strategy=STRATEGY, **{"arguments": ARGUMENTS, "exports": False, **options}) as job:
        yield job


def lost_at(job: MemoryJob, step: int, victim: str) -> None:
    """Runs both workers until each has the copy of this step; then the process of one is killed, and both end."""
    job.hold_at(step)
    job.start(environ=NO_VOLUME).wait_for_copies(step)
    job[victim].kill()
    job.let_go()
    codes = job.wait()
    assert codes.pop(victim) == -signal.SIGKILL
    assert set(codes.values()) == {75}


def resumed(job: Job) -> Sequence[str]:
    """The steps that the leader said it resumed at."""
    return re.findall(r"^resumed: step (\d+) ", job["worker-0"].log, re.M)


@pytest.mark.parametrize("victim", WORKERS)
def test_a_worker_that_lost_its_pod_gets_the_newest_copy_of_another_and_the_job_ends_with_the_same_bits(
    folder: Path, together: Job, victim: str
) -> None:
    with two_workers(folder) as job:
        lost_at(job, 40, victim)
        job.lose_memory(victim)
        assert job.start(environ=NO_VOLUME).wait() == dict.fromkeys(WORKERS, 0)
        assert resumed(job) == ["40"]
        survivor = WORKERS[victim == "worker-0"].replace("-", " ")
        assert re.search(rf"^step 40: \d+\.\d MB came from the memory of {survivor}$", job[victim].log, re.M)
        for name in WORKERS:
            assert job.copies(name) == [80, 90]
            assert tensors(job.memory(name) / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")
    assert not job.checkpoints.exists()


def test_a_worker_whose_process_alone_was_killed_has_its_copy_and_gets_none(folder: Path, together: Job) -> None:
    with two_workers(folder) as job:
        lost_at(job, 40, "worker-1")
        assert job.start(environ=NO_VOLUME).wait() == dict.fromkeys(WORKERS, 0)
        assert resumed(job) == ["40"]
        assert "came from the memory" not in job["worker-0"].log + job["worker-1"].log
        assert tensors(job.memory("worker-1") / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")


def test_without_a_number_of_steps_all_workers_take_the_one_that_the_leader_names(folder: Path, together: Job) -> None:
    with two_workers(folder) as job:
        job.every_steps = ""
        assert job.start(environ=NO_VOLUME).wait() == dict.fromkeys(WORKERS, 0)
        chosen = r"^a copy in memory after every (\d+) steps costs \d\.\d % of the training "
        (named,) = re.findall(chosen, job["worker-0"].log, re.M)
        assert "a copy in memory" not in job["worker-1"].log
        measured, steps = (10, 20, 30, 40, 50), int(named)
        due = {*measured, *range(steps, 90, steps), 90}
        for name in WORKERS:
            assert job.copies(name) == sorted(due)[-2:]
            assert tensors(job.memory(name) / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")


def test_a_number_of_steps_that_is_given_is_kept_and_what_it_costs_is_said_once(folder: Path) -> None:
    with two_workers(folder) as job:
        job.every_steps = "1"
        assert job.start(environ=NO_VOLUME).wait() == dict.fromkeys(WORKERS, 0)
        assert job.copies("worker-1") == [89, 90]
        said = r"^a copy in memory after every step costs [\d.]+ % .*; with checkpoint\.inMemory\.everySteps \d+"
        assert len(re.findall(said, job["worker-0"].log, re.M)) == 1
        assert "a copy in memory" not in job["worker-1"].log


def _data(job: MemoryJob, name: str) -> Path:
    return job.memory(name) / "ckpt-40.data-00000-of-00001"


DAMAGES: Mapping[str, tuple[Callable[[MemoryJob], object], str]] = {
    "a byte of one copy is flipped": (lambda job: flip(_data(job, "worker-0")), "40"),
    "one copy is half written": (lambda job: (job.memory("worker-1") / "ckpt-40.index").unlink(), "40"),
    "both copies are damaged": (lambda job: [flip(_data(job, "worker-0")), cut(_data(job, "worker-1"))], "30"),
}


@pytest.mark.parametrize(("damage", "step"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_or_half_written_copy_is_not_taken(
    folder: Path, together: Job, damage: Callable[[MemoryJob], object], step: str
) -> None:
    with two_workers(folder) as job:
        lost_at(job, 40, "worker-1")
        damage(job)
        assert job.start(environ=NO_VOLUME).wait() == dict.fromkeys(WORKERS, 0)
        assert resumed(job) == [step]
        assert tensors(job.memory("worker-1") / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")


def test_if_all_memory_is_lost_without_a_directory_the_training_begins_anew_and_says_so(folder: Path) -> None:
    anew = "no worker has a checkpoint in memory: the training begins at step 0"
    with two_workers(folder) as job:
        lost_at(job, 10, "worker-1")
        job.lose_memory(*WORKERS)
        assert job.start(environ=NO_VOLUME).wait() == dict.fromkeys(WORKERS, 0)
        assert job["worker-0"].log.count(anew) == 2
        assert resumed(job) == []


def test_the_newer_one_of_memory_and_directory_is_taken(folder: Path, together: Job) -> None:
    arguments = (*ARGUMENTS, "--checkpoint-every-steps=20")
    with two_workers(folder, arguments=arguments) as job:
        job.hold_at(30)
        job.start().wait_for_copies(30)
        job.kill()
        job.wait()
        job.lose_memory("worker-0")
        job.hold_at(50)
        job.start().wait_for_copies(50)
        job.wait_for_checkpoint(40)
        assert resumed(job) == ["30"]
        job.kill()
        job.wait()
        job.lose_memory(*WORKERS)
        job.let_go()
        assert job.start().wait() == dict.fromkeys(WORKERS, 0)
        assert resumed(job) == ["30", "40"]
    assert tensors(job.checkpoints / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")


@pytest.mark.parametrize("options", [{}, SESSION], ids=["loop", "session"])
def test_a_copy_in_memory_is_not_shown_as_the_newest_checkpoint(folder: Path, options: Mapping[str, Any]) -> None:
    (port,) = free_ports(1)
    with two_workers(folder, **options) as job:
        lost_at(job, 20, "worker-1")
        job.hold_at(30)
        job.start("worker-0", environ={**NO_VOLUME, "DTJ_STATUS_PORT": str(port)})
        job.start("worker-1", environ=NO_VOLUME)
        job.wait_for_copies(30)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=DEADLINE) as answer:
            status = json.load(answer)
    assert resumed(job) == ["20"]
    assert status["step"] >= 20
    assert "lastCheckpointStep" not in status


def test_launchers_of_the_pods_that_stay_go_on_with_a_new_pod_that_has_nothing(folder: Path, together: Job) -> None:
    environ = {**NO_VOLUME, "DTJ_RESTART_SCOPE": "Pod"}
    with two_workers(folder, program=image_entrypoint()) as job:
        job.hold_at(30)
        start(job, environ=environ)
        job.wait_for_copies(30)
        survivor = job["worker-1"]
        lose_pod(job, "worker-0", survivor)
        job.lose_memory("worker-0")
        start(job, "worker-0", environ=environ)
        assert job.wait() == dict.fromkeys(WORKERS, 0)
        assert job["worker-1"] is survivor
        assert resumed(job) == ["30"]
        assert tensors(job.memory("worker-0") / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")


def test_a_session_that_is_asked_to_stop_saves_in_memory_and_resumes_at_that_step(folder: Path, tmp_path: Path) -> None:
    steps, options = 100, {"arguments": (f"--script={EXAMPLE}", "--", "--steps=100"), "imported": True}
    with two_workers(tmp_path / "whole", **options) as whole:
        assert whole.start(environ=NO_VOLUME).wait(SOON) == dict.fromkeys(WORKERS, 0)
    with two_workers(folder, **options) as job:
        job.hold_at(40)
        job.start(environ=NO_VOLUME).wait_for_copies(40)
        job["worker-1"].kill(signal.SIGTERM)
        job.let_go()
        assert job.wait() == dict.fromkeys(WORKERS, 42)
        (saved,) = set(re.findall(r"all tasks saved step (\d+)", job["worker-0"].log + job["worker-1"].log))
        job.lose_memory("worker-1")
        assert job.start(environ=NO_VOLUME).wait(SOON) == dict.fromkeys(WORKERS, 0)
        assert resumed(job) == [saved]
        names = {"worker-0": whole, "worker-1": job}
        weights = [tensors(one.memory(name) / f"ckpt-{steps}") for name, one in names.items()]
    assert weights[0] == weights[1]


FAILS = """
from pathlib import Path

class Fails:
    every_steps = 1

    def __call__(self, step, metrics, model):
        failed, at = Path("failed"), {at}
        count = failed.stat().st_size // {workers} if failed.exists() else 0
        if count < len(at) and step == at[count]:
            with failed.open("a") as file:
                file.write("x")
            raise RuntimeError

def actions():
    return [Fails()]
"""


@pytest.mark.parametrize(
    ("workers", "every", "at", "begins"),
    [
        # The copies of step 40; the directory has 30, and before it 15.
        (WORKERS, "15", (44, 43, 42, 32, 31), ["40", "40", "30", "30", "15"]),
        (WORKERS[:1], "", (44, 43, 42), ["40", "40", "30"]),
        (WORKERS[:1], "", (12, 12, 12, 12), ["10", "10", "10", "10"]),
    ],
    ids=["directory", "no directory", "nothing else"],
)
def test_a_checkpoint_after_which_two_runs_in_a_row_failed_is_not_taken_again(
    folder: Path, workers: Sequence[str], every: str, at: Sequence[int], begins: Sequence[str]
) -> None:
    arguments = (*ARGUMENTS, "--actions=fails:actions", *([f"--checkpoint-every-steps={every}"] if every else []))
    files, environ = {"fails.py": FAILS.format(at=at, workers=len(workers))}, {} if every else NO_VOLUME
    with two_workers(folder, arguments=arguments, files=files, roles={"worker": len(workers)}) as job:
        for _ in at:
            job.start(environ=environ)
            assert set(job.wait().values()) == {2}
        job.lose_memory(*workers[1:])
        assert set(job.start(environ=environ).wait().values()) == {0}
        assert resumed(job) == begins
        said = re.findall(
            r"^warning: two runs in a row began with step (\d+), .* with step (\d+)$", job["worker-0"].log, re.M
        )
        assert said == [(old, new) for old, new in pairwise(begins) if old != new]


# -- in one process ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "step", "replica"),
    [((0, 0), 0, 0), ((40, 40), 40, 0), ((30, 40, 40), 40, 1), ((0, 0, 10), 10, 2)],
)
def test_the_first_of_those_that_have_the_newest_step_sends(steps: Sequence[int], step: int, replica: int) -> None:
    from dtj_trainer.checkpoint.in_memory import Newest

    newest = Newest.of(steps)
    assert (newest.step, newest.replica) == (step, replica)


@pytest.mark.parametrize(
    ("digests", "wanted"),
    [((0, 7, 7), [0]), ((7, 7, 7), []), ((8, 7, 0), [0, 2])],
    ids=["one lacks it", "all have it", "one has other bits"],
)
def test_all_take_the_bits_of_the_one_that_sends(digests: Sequence[int], wanted: Sequence[int]) -> None:
    from dtj_trainer.checkpoint.in_memory import Newest

    assert Newest(step=40, replica=1).wanted_by(digests) == wanted


class Memory:
    """The copies of one variable."""

    def __init__(self, directory: Path) -> None:
        import tensorflow as tf

        from dtj_trainer.checkpoint.manager import Store
        from dtj_trainer.checkpoint.state import State
        from dtj_trainer.config.outputs import CheckpointPolicy, InMemory
        from dtj_trainer.config.store_url import StorePolicy

        self.state = State(
            weights=[tf.Variable(tf.zeros([64, 64]))], step=tf.Variable(0, dtype=tf.int64), total_steps=tf.Variable(0)
        )
        policy = CheckpointPolicy(
            directory=None, location=None, store=StorePolicy(cache=directory, retry_seconds=1.0),
            memory=InMemory(directory=directory, every_steps=10),
        )  # fmt: skip
        memory = Store.of(self.state, policy, writes=False).memory
        assert memory is not None
        self.store = memory


def test_later_steps_do_not_change_what_was_read_for_a_copy(tmp_path: Path) -> None:
    import tensorflow as tf

    state = Memory(tmp_path).state
    (weight,) = (one for name, one in state._variables.items() if name.startswith("weights"))
    for number in (1.0, 2.0):
        weight.assign(tf.fill([64, 64], number))
        values = state.snapshot("/device:CPU:0", often=True)
        weight.assign_add(tf.ones([64, 64]))
        weight.scatter_update(tf.IndexedSlices(tf.zeros([1, 64]), [0]))
        assert [float(tf.reduce_max(one)) for one in values] == [0, 0, number]
        assert float(tf.reduce_min(values[-1])) == number


@pytest.mark.parametrize("often", [False, True])
def test_what_is_not_finite_is_found_in_weights_and_optimizer(often: bool) -> None:
    import tensorflow as tf

    from dtj_trainer.checkpoint.finite_weights import FiniteWeights

    weight, slot, later = (tf.Variable(tf.zeros([4])) for _ in range(3))
    finite = FiniteWeights([weight], optimizer=[slot], often=often)
    optimizer = "the weights are finite, but the optimizer's state is"
    for part, what in ((weight, "the weights are"), (slot, optimizer), (later, optimizer)):
        if part is later:
            finite.require([later])
        assert finite.find_not_finite() is None
        part[2].assign(float("nan"))
        found = finite.find_not_finite()
        assert found is not None
        assert found.what == what
        part[2].assign(0.0)


def test_no_more_than_two_copies_take_memory_at_any_time(tmp_path: Path) -> None:
    from dtj_trainer.checkpoint.files import find

    memory, seen = Memory(tmp_path), list[list[int]]()
    write = memory.state.write

    def look_and_write(*arguments: Any) -> None:
        seen.append(find(tmp_path))
        write(*arguments)

    memory.state.write = look_and_write  # type: ignore[method-assign]
    for step in (10, 20, 30, 40):
        memory.store.save(step)
    assert seen == [[], [10], [20], [30]]
    assert find(tmp_path) == [40, 30]


def test_memory_that_is_too_small_is_said_once_until_a_copy_fits_again(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    write = memory.state.write

    def fail(*arguments: Any) -> None:
        raise OSError(28, os.strerror(28))

    with log_lines() as printed:
        for step, act in ((10, write), (20, fail), (30, fail), (40, write), (50, fail)):
            memory.state.write = act  # type: ignore[method-assign]
            memory.store.save_async(step)
            memory.store.settle()
    assert printed == [
        f"warning: checkpoint directory {tmp_path}: step {step} cannot be saved (No space left on device); "
        f"{tmp_path}/ckpt-{before} stays; raise checkpoint.inMemory.sizeLimit, which has to hold two copies; "
        "the training goes on and tries again"
        for step, before in ((20, 10), (50, 40))
    ]


def test_the_newest_sound_copy_is_found_and_those_that_cannot_be_read_make_room(tmp_path: Path) -> None:
    saved = Memory(tmp_path).store
    for step in (10, 20):
        saved.save(step)
    (tmp_path / ".saving-other-1").mkdir()
    (tmp_path / "ckpt-30.data-00000-of-00001").write_bytes(b"half")
    flip(tmp_path / "ckpt-20.data-00000-of-00001")
    found = Memory(tmp_path).store
    with log_lines() as printed:
        assert found.newest_sound() == 10
    assert len(printed) == 1
    assert re.fullmatch(r"warning: checkpoint \S+/ckpt-20 cannot be used \(damaged: .+\): it is removed", printed[0])
    assert not list(tmp_path.glob("ckpt-20*"))
    assert not list(tmp_path.glob(".saving-*"))
    found.save(40)
    assert {path.name.partition(".")[0] for path in tmp_path.glob("ckpt-*")} == {"ckpt-10", "ckpt-40"}
