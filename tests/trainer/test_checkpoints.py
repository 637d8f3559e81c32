"""Checkpoints: whole or not there, found again whatever was damaged, and no run lost to a volume that is full."""

import errno
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from types import SimpleNamespace

import pytest

from log_lines import log_lines
from trainer.cluster import DEADLINE, Job
from trainer.conftest import SHORT
from trainer.outcome import cut, flip, tensors

ONE = {"worker": 1}
STEPS = (10, 20, 30)


class Saved:
    """One variable, saved as the number of its step at some steps by a process that is gone."""

    def __init__(self, directory: Path, *, keep: int = 3, writes: bool = True) -> None:
        import tensorflow as tf

        from dtj_trainer.checkpoint.manager import Store
        from dtj_trainer.checkpoint.state import State

        self.weight = tf.Variable(tf.zeros([64, 64]))
        self.step = tf.Variable(0, dtype=tf.int64)
        total = tf.Variable(0, dtype=tf.int64)
        self.store = Store(
            State(weights=[self.weight], step=self.step, total_steps=total),
            directory, keep=keep, writes=writes,
        )  # fmt: skip

    def save(self, *steps: int) -> None:
        """Saves these steps."""
        for step in steps:
            self.weight.assign(self.weight * 0 + step)
            self.step.assign(step)
            self.store.save(step)

    def restore(self) -> int:
        """The step that is found, which the weight has to be of as well."""
        self.store.restore_newest()
        step = int(self.step.numpy())
        assert (self.weight.numpy() == step).all()
        return step


def sound(directory: Path) -> list[int]:
    """The steps whose checkpoints can be read in full: all of those that are there."""
    import tensorflow as tf

    from dtj_trainer.checkpoint.files import find
    from dtj_trainer.checkpoint.state import State

    steps, numbers = find(directory), [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    for step in steps:
        State(step=numbers[0], total_steps=numbers[1]).read(directory, step)
    return steps


def index(directory: Path) -> Path:
    return directory / "ckpt-30.index"


def data(directory: Path) -> Path:
    return directory / "ckpt-30.data-00000-of-00001"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "index cut": lambda directory: cut(index(directory)),
    "index empty": lambda directory: index(directory).write_bytes(b""),
    "bit of the index flipped": lambda directory: flip(index(directory)),
    "data cut": lambda directory: cut(data(directory)),
    "data empty": lambda directory: data(directory).write_bytes(b""),
    "bit of the data flipped": lambda directory: flip(data(directory)),
    "shard missing": lambda directory: data(directory).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_whatever_is_damaged_the_one_before_is_restored(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    Saved(tmp_path).save(*STEPS)
    damage(tmp_path)
    found = Saved(tmp_path)
    with log_lines() as printed:
        assert found.restore() == 20
    assert len(printed) == 1
    assert re.fullmatch(
        r"warning: checkpoint \S+/ckpt-30 cannot be used \(damaged: .+\); trying an older one", printed[0]
    )
    # The damaged one is not counted among those that are kept, and goes when its step has passed.
    found.save(40)
    assert sorted(path.name for path in tmp_path.glob("*.index")) == ["ckpt-10.index", "ckpt-20.index", "ckpt-40.index"]


@pytest.mark.parametrize("file", [index, data])
def test_a_checkpoint_that_cannot_be_read_is_an_error_with_its_cause_and_stays(
    tmp_path: Path, file: Callable[[Path], Path]
) -> None:
    from dtj_trainer.errors import Unreadable

    Saved(tmp_path).save(*STEPS)
    file(tmp_path).rename(tmp_path / "content")
    file(tmp_path).symlink_to(file(tmp_path))  # a loop is no file for root either
    found = Saved(tmp_path)
    for look in (found.store.restore_newest, found.store.newest_sound, lambda: found.store.problem_of(30)):
        with pytest.raises(Unreadable, match=r"checkpoint file \S+/ckpt-30\.\S+: cannot be read \(Too many levels"):
            look()
    (tmp_path / "content").replace(file(tmp_path))
    assert found.restore() == 30


def test_a_part_that_older_checkpoints_do_not_have_stays_as_it_is_and_is_named(tmp_path: Path) -> None:
    import tensorflow as tf

    from dtj_trainer.checkpoint.state import State
    from dtj_trainer.errors import UsageError

    Saved(tmp_path).save(10)
    slot, numbers = tf.Variable(5.0), [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    parts = {"weights": [tf.Variable(tf.zeros([64, 64]))], "model.optimizer": [slot]}
    state = State(
        {"model.optimizer": ["momentum"]}, ["model.optimizer"], step=numbers[0], total_steps=numbers[1], **parts
    )
    state.restore(state.read(tmp_path, 10))
    assert (int(numbers[0].numpy()), float(slot.numpy()), state.missing) == (10, 5.0, ["model.optimizer"])
    with pytest.raises(UsageError, match=r"model\.optimizer/0"):
        State({}, step=numbers[0], total_steps=numbers[1], **parts).read(tmp_path, 10)


@pytest.mark.parametrize("failure", [errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EACCES])
def test_a_volume_that_fails_for_a_moment_does_not_make_a_checkpoint_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    import tensorflow as tf

    Saved(tmp_path).save(*STEPS)
    readers = iter([tf.errors.UnknownError(None, None, os.strerror(failure))])

    def load(path: str) -> object:
        for error in readers:
            raise error
        return original(path)

    original = tf.train.load_checkpoint
    monkeypatch.setattr(tf.train, "load_checkpoint", load)
    assert Saved(tmp_path).restore() == 30


@pytest.mark.parametrize("content", [b"", b"\xff\x00garbage"], ids=["empty", "garbage"])
def test_the_file_that_names_the_newest_decides_nothing(tmp_path: Path, content: bytes) -> None:
    import tensorflow as tf

    Saved(tmp_path).save(*STEPS)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-30")
    (tmp_path / "checkpoint").write_bytes(content)
    found = Saved(tmp_path)
    assert found.restore() == 30
    found.save(40)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-40")


@pytest.mark.parametrize("seen_at", ["first look", "second look"])
def test_a_worker_restores_what_the_leader_has_chosen_and_waits_until_it_can_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen_at: str
) -> None:
    from dtj_trainer.checkpoint import checkpointing, manager

    leader, worker = tmp_path / "leader", tmp_path / "worker"
    Saved(leader).save(*STEPS)
    Saved(worker).save(10)
    monkeypatch.setattr(checkpointing, "of_each_replica", lambda strategy, number: [30, number])
    look = lambda: shutil.copytree(leader, worker, dirs_exist_ok=True)  # noqa: E731
    if seen_at == "first look":
        look()
        Saved(worker).save(40)  # by an earlier run, while the leader waited for its end
    monkeypatch.setattr(manager.time, "sleep", lambda seconds: look())
    config = SimpleNamespace(
        strategy="MultiWorkerMirrored", cluster=SimpleNamespace(leads=False), start_timeout=60.0,
    )  # fmt: skip
    found = Saved(worker, writes=False)
    checkpointing.restore_together(config, None, found.store)  # type: ignore[arg-type]
    assert found.weight.numpy()[0, 0] == int(found.step.numpy()) == found.store.last_step == 30


def test_a_step_that_the_leader_left_out_is_read_by_all_tasks_when_it_is_saved_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the leader would wait for the others, which sum what each replica has a share of."""
    from dtj_trainer.checkpoint import background_writer, checkpointing

    monkeypatch.setattr(background_writer, "_PREVIOUS_SAVE_SECONDS", 0.0)
    leader, worker = Saved(tmp_path), Saved(tmp_path, writes=False)
    slow, reads = threading.Event(), []
    write = leader.store._write
    monkeypatch.setattr(leader.store, "_write", lambda *what: (slow.wait(DEADLINE), write(*what)))
    for task in (leader, worker):
        read = task.store._read
        monkeypatch.setattr(task.store, "_read", lambda task=task, read=read: (reads.append(task), read())[1])
        task.store.save_async(10)
        task.store.save_async(20)
    reads.clear()
    slow.set()
    words: list[int] = []  # of the leader

    def of_each_replica(_: object, number: int) -> list[int]:
        if task is leader:
            words.append(number)
            return [number]
        return [words.pop(0)]

    monkeypatch.setattr(checkpointing, "of_each_replica", of_each_replica)
    config = SimpleNamespace(strategy="MultiWorkerMirrored")
    for task in (leader, worker):
        checkpointing.save_together(config, None, task.store, 20)  # type: ignore[arg-type]
    assert reads == [leader, worker]
    assert sound(tmp_path) == [20, 10]
    for task in (leader, worker):
        checkpointing.save_together(config, None, task.store, 20)  # type: ignore[arg-type]
    assert reads == [leader, worker]


def test_as_many_stay_as_are_to_be_kept_and_nothing_else(tmp_path: Path) -> None:
    Saved(tmp_path, keep=2).save(*STEPS)
    steps = {int(re.sub(r"\D+", "", path.name.partition(".")[0])) for path in tmp_path.glob("ckpt-*")}
    assert steps == {20, 30}
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith("ckpt-")} == {"checkpoint"}


def test_what_a_killed_process_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".saving-elsewhere-7").mkdir(parents=True)
    (tmp_path / ".saving-elsewhere-7" / "ckpt-10.data-00000-of-00001").write_bytes(b"half")
    (tmp_path / ".saving-for-later").mkdir()  # of a user
    Saved(tmp_path, writes=False).restore()
    assert len(list(tmp_path.iterdir())) == 2
    Saved(tmp_path).restore()
    assert {path.name for path in tmp_path.iterdir()} == {".lock", ".saving-for-later"}


def test_data_of_a_checkpoint_that_a_killed_process_did_not_complete_are_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "ckpt-20.data-00000-of-00001"
    tmp_path.mkdir(exist_ok=True)
    left.write_bytes(b"whole, without an index")
    assert Saved(tmp_path).restore() == 0
    assert left.exists(), "nothing there is known to be of this trainer"
    Saved(tmp_path).save(10)
    assert Saved(tmp_path, writes=False).restore() == 10
    assert left.exists()
    assert Saved(tmp_path).restore() == 10
    assert not left.exists()
    assert sound(tmp_path) == [10]


def test_a_task_that_does_not_write_for_the_job_leaves_nothing(tmp_path: Path) -> None:
    Saved(tmp_path, writes=False).save(*STEPS)
    assert not list(tmp_path.iterdir())


@contextmanager
def small_volume(directory: Path, size: str) -> Iterator[Path]:
    """A file system of its own of this many bytes; gone afterwards, whatever happens."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


def can_mount() -> bool:
    """Root in a container may not."""
    return (
        os.geteuid() == 0
        and not subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
        ).returncode
    )


mounts = pytest.mark.skipif(not can_mount(), reason="mounts file systems: needs root")


def fill(volume: Path) -> Path:
    """Leaves no byte free."""

    def write_for_ever() -> None:
        while file.write(bytes(4096)):
            pass

    filler = volume / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        write_for_ever()
    return filler


@mounts
def test_a_volume_that_is_full_for_a_while_costs_no_more_than_the_checkpoints_of_that_while(folder: Path) -> None:
    # A checkpoint is of 1.8 MB: twelve of them, as SHORT keeps, would fill the volume without a filler.
    arguments = [*SHORT, "--checkpoint-keep=3", "--epochs=100000"]
    with small_volume(folder / "checkpoints", "16m") as volume:
        with Job(folder, strategy="OneDevice", roles=ONE, arguments=arguments, exports=False) as job:
            worker = job.start()["worker-0"]
            job.wait_for_checkpoint(20)
            filler = fill(volume)
            step = int(
                worker.wait_for(
                    r"warning: checkpoint directory \S+: step (\d+) cannot be saved \(No space left on device\); "
                    r"\S+/ckpt-\d+ stays; make room there, .*; the training goes on and tries again\n"
                )[1]
            )
            assert job.newest_checkpoint < step
            filler.unlink()
            job.wait_for_checkpoint(step + 10)
            worker.kill(signal.SIGTERM)
            assert worker.wait() == 42
        assert sound(volume)


@mounts
@pytest.mark.parametrize("asked_to_stop", [False, True])
def test_the_last_checkpoint_that_finds_no_room_is_an_error_of_one_line_and_the_older_ones_stay(
    folder: Path, asked_to_stop: bool
) -> None:
    epochs = 100000 if asked_to_stop else 20
    with small_volume(folder / "checkpoints", "16m") as volume:
        with Job(
            folder, strategy="OneDevice", roles=ONE, arguments=[*SHORT, f"--epochs={epochs}"], exports=False
        ) as job:
            worker = job.start()["worker-0"]
            job.wait_for_checkpoint(20)
            fill(volume)
            worker.wait_for("warning: .*No space left on device")
            if asked_to_stop:
                worker.kill(signal.SIGTERM)
            assert worker.wait() == 1
        assert re.fullmatch(
            r"checkpoint directory \S+: step \d+ cannot be saved \(No space left on device\); \S+/ckpt-\d+ stays; "
            r"make room there, or mount a volume that can be written",
            worker.last_words,
        )
        assert "Traceback" not in worker.log
        assert sound(volume)


def test_the_time_between_checkpoints_is_chosen_once_it_is_known_what_one_costs(folder: Path) -> None:
    arguments = [*SHORT, "--checkpoint-every-seconds=auto"]
    with Job(folder, strategy="OneDevice", roles=ONE, arguments=arguments, exports=False) as job:
        job.start(environ={"DTJ_SECONDS_BETWEEN_LOSSES": "50400"})
        assert job.wait() == {"worker-0": 0}
    chosen = r"^checkpoints every \d+ s: a save costs [\d.]+ m?s, and this job lost a replica every 14 h$"
    assert re.search(chosen, job["worker-0"].log, re.M)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 42), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_signal_during_a_save_leaves_nothing_half(folder: Path, alone: Job, number: int, code: int) -> None:
    arguments = [*SHORT, "--checkpoint-every-steps=1"]
    with Job(folder, strategy="OneDevice", roles=ONE, arguments=arguments, exports=False) as job:
        worker = job.start()["worker-0"]
        job.wait_for_checkpoint(3)
        while not glob(f"{job.checkpoints}/.saving-*/ckpt-*"):  # pathlib's fails where a folder goes meanwhile
            assert worker.process.poll() is None
        worker.kill(number)
        assert worker.wait() == code
        assert job.newest_checkpoint < 90, "too fast to be interrupted"
        assert job.start().wait() == {"worker-0": 0}
    assert "warning" not in job["worker-0"].log
    assert tensors(job.checkpoints / "ckpt-90") == tensors(alone.checkpoints / "ckpt-90")
    assert not list(job.checkpoints.glob(".saving-*"))


def test_two_processes_that_save_to_one_directory_leave_it_sound(folder: Path, alone: Job) -> None:
    # As when a node comes back from behind a partition: the old attempt's leader writes next to the new one's.
    with Job(
        folder, strategy="OneDevice", roles={"worker": 1}, arguments=[*SHORT, "--checkpoint-keep=2"], exports=False
    ) as job:
        (folder / "old").mkdir()
        (job.checkpoints / ".lock").mkdir(parents=True)  # as on a volume that has no locks
        job.start()
        with Job(
            folder / "old", strategy="OneDevice", roles=ONE, arguments=[*SHORT, "--checkpoint-keep=2"], exports=False
        ) as other:
            other.start(environ={"DTJ_CHECKPOINT_DIR": str(job.checkpoints)})
            assert other.wait() == {"worker-0": 0}
            assert job.wait() == {"worker-0": 0}
    assert tensors(job.checkpoints / "ckpt-90") == tensors(alone.checkpoints / "ckpt-90")
    assert sound(job.checkpoints)


def test_more_and_fewer_workers_go_on_from_the_same_step(folder: Path, together: Job) -> None:
    before = 0
    for workers, until in ((2, 20), (3, 50), (1, 90)):
        with Job(
            folder / str(workers),
            strategy="MultiWorkerMirrored",
            roles={"worker": workers},
            arguments=SHORT,
            exports=False,
        ) as job:
            if before:
                shutil.move(folder / "checkpoints", job.folder)
            if until < 90:
                job.hold_at(until)
                job.start().wait_for_checkpoint(until)
                job["worker-0"].kill(signal.SIGTERM)
                job.let_go()
                assert set(job.wait().values()) == {42}
            else:
                assert job.start().wait() == {"worker-0": 0}
            if before:
                job["worker-0"].wait_for(f"resumed: step {before} of 90")
            before = job.newest_checkpoint
            assert before >= until
            shutil.move(job.checkpoints, folder)
    # The sums are made in another order, so the last bits may differ.
    assert job.result["loss"] == pytest.approx(together.result["loss"], abs=1e-5)
