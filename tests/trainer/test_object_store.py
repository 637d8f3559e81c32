"""Checkpoints, exports and logs in a bucket, against servers that speak the protocols of both kinds of store."""

import errno
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from dtj_trainer.checkpoint.mirror import CheckpointMirror
from dtj_trainer.config.parsing import parse
from dtj_trainer.config.store_url import Location
from dtj_trainer.errors import NotSaved, TrainerError, UsageError
from dtj_trainer.object_store import export_versions
from dtj_trainer.object_store.bucket import Bucket, StoreFailed
from dtj_trainer.object_store.log_folder import FolderCopy, with_local_copies
from dtj_trainer.process.output_directories import copied_logs
from support.faulty_store import READ, REMOVE, WRITE, Fault, FaultyProxy
from trainer.cluster import SOURCE
from trainer.stores import Store


@pytest.fixture
def proxy(store: Store) -> FaultyProxy:
    return store.proxy


@pytest.fixture
def bucket(store: Store) -> Bucket:
    return Bucket(Location.of(store.url("run")), option="--checkpoint-dir", retry_seconds=1)


@pytest.fixture
def impatient(store: Store) -> Bucket:
    """For faults that stay."""
    return Bucket(Location.of(store.url("run")), option="--checkpoint-dir", retry_seconds=0.3)


def saved(mirror: CheckpointMirror, directory: Path, step: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"ckpt-{step}.data-00000-of-00001").write_bytes(bytes([step]) * 1000)
    (directory / f"ckpt-{step}.index").write_bytes(b"index")
    mirror.upload(step)


def test_a_checkpoint_comes_back_on_another_machine(bucket: Bucket, tmp_path: Path) -> None:
    writer = CheckpointMirror(bucket, tmp_path / "one")
    writer.take_over()
    for step in (1, 12, 2):
        saved(writer, tmp_path / "one", step)
    writer.remove(1)
    reader = CheckpointMirror(bucket, tmp_path / "two")
    assert reader.steps() == [12, 2]
    assert reader.fetch(12)
    assert not reader.fetch(1)
    assert (tmp_path / "two/ckpt-12.data-00000-of-00001").read_bytes() == bytes([12]) * 1000


def test_a_checkpoint_without_a_marker_does_not_count_and_is_removed(bucket: Bucket, tmp_path: Path) -> None:
    mirror = CheckpointMirror(bucket, tmp_path)
    mirror.take_over()
    bucket.write("run/ckpt-7.index", b"index")
    assert mirror.steps() == []
    mirror.take_over()
    assert [entry.key for entry in bucket.list("")] == ["run/writer.json"]


def test_checkpoints_do_not_pile_up_on_the_disk_while_the_store_is_away(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    from dtj_trainer.checkpoint.manager import Store as Checkpoints
    from dtj_trainer.checkpoint.state import State

    def away(*_: object) -> None:
        raise StoreFailed("the object store does not answer")

    def on_the_disk() -> list[str]:
        return sorted(path.name for path in tmp_path.glob("ckpt-*.index"))

    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    state = State(weights=[tf.Variable(tf.zeros([4]))], step=counters[0], total_steps=counters[1])
    mirror = CheckpointMirror(bucket, tmp_path)
    checkpoints = Checkpoints(state, tmp_path, keep=1, writes=True, mirror=mirror)
    checkpoints.restore_newest()
    checkpoints.save(1)
    for method in ("upload", "delete"):
        with monkeypatch.context() as patch:
            patch.setattr(Bucket, method, away)
            for step in (2, 3):
                checkpoints.save_async(step)
                checkpoints.settle()
        assert on_the_disk() == ["ckpt-1.index"]
    checkpoints.save(4)
    assert mirror.steps() == [4]
    assert on_the_disk() == ["ckpt-4.index"]


def test_data_that_a_killed_process_has_copied_halfway_do_not_stay_on_the_disk(bucket: Bucket, tmp_path: Path) -> None:
    import tensorflow as tf

    from dtj_trainer.checkpoint.manager import Store as Checkpoints
    from dtj_trainer.checkpoint.state import State

    left = tmp_path / "ckpt-7.data-00000-of-00001"
    left.write_bytes(b"without an index")
    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    state = State(weights=[tf.Variable(tf.zeros([4]))], step=counters[0], total_steps=counters[1])
    Checkpoints(state, tmp_path, keep=1, writes=True, mirror=CheckpointMirror(bucket, tmp_path)).restore_newest()
    assert not left.exists()


def test_a_local_copy_that_finds_no_room_is_one_line(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    from dtj_trainer.checkpoint.manager import Store as Checkpoints
    from dtj_trainer.checkpoint.state import State

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    bucket.write("run/validation.json", b"{}")
    counters = [tf.Variable(0, dtype=tf.int64) for _ in range(2)]
    state = State(weights=[tf.Variable(tf.zeros([4]))], step=counters[0], total_steps=counters[1])
    checkpoints = Checkpoints(state, tmp_path, keep=1, writes=True, mirror=CheckpointMirror(bucket, tmp_path))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(NotSaved, match=r"cannot hold the local copy of \S+ \(No space left on device\); make room"):
        checkpoints.restore_newest()


def test_of_two_runs_the_later_one_writes(bucket: Bucket, tmp_path: Path) -> None:
    first, second = (CheckpointMirror(bucket, tmp_path / name) for name in "ab")
    first.take_over()
    saved(first, tmp_path / "a", 1)
    second.take_over()
    with pytest.raises(NotSaved, match="another run"):
        saved(first, tmp_path / "a", 2)
    assert second.steps() == [1]


def test_a_run_whose_writer_marker_is_removed_saves_on(bucket: Bucket, tmp_path: Path) -> None:
    mirror = CheckpointMirror(bucket, tmp_path)
    mirror.take_over()
    bucket.delete("run/writer.json")
    saved(mirror, tmp_path, 1)
    assert mirror.steps() == [1]
    assert bucket.read("run/writer.json") is not None


def test_a_missing_bucket_is_refused_at_the_start(bucket: Bucket) -> None:
    with pytest.raises(UsageError, match="there is no bucket absent"):
        Bucket.prove(
            Location(bucket.location.scheme, "absent", ""), option="--checkpoint-dir", writes=True, retry_seconds=2
        )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "GOOGLE_APPLICATION_CREDENTIALS",
            "/absent.json",
            r"no credentials for gs:// \(File /absent\.json was not found",
        ),
        ("STORAGE_EMULATOR_HOST", "emulator:4443", "the object store cannot be used as configured"),
    ],
)
def test_a_variable_that_leads_to_no_store_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"^--log-dir=gs://bucket/run: .*{message}") as ended:
        Bucket.prove(Location("gs", "bucket", "run"), option="--log-dir", writes=True, retry_seconds=1)
    assert "\n" not in str(ended.value)


def test_a_bucket_runs_no_threads_of_python(store: Store) -> None:
    code = (
        "import threading\n"
        "from dtj_trainer.config.store_url import Location\n"
        "from dtj_trainer.object_store.bucket import Bucket\n"
        f"place = Location.of({store.url('run')!r})\n"
        "Bucket.prove(place, option='--log-dir', writes=True, retry_seconds=5)\n"
        "assert Bucket(place, option='--log-dir', retry_seconds=5).read('run/none') is None\n"
        "assert threading.enumerate() == [threading.main_thread()]\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=SOURCE, check=True)


def test_a_bucket_from_which_nothing_may_be_removed_is_refused_at_the_start(bucket: Bucket, proxy: FaultyProxy) -> None:
    proxy.fail(REMOVE, ".dtj-probe", Fault.FORBIDDEN, times=100)
    with pytest.raises(UsageError, match=r"access denied .* the right to list, read, write and delete objects"):
        Bucket.prove(bucket.location, option="--checkpoint-dir", writes=True, retry_seconds=1)


def test_a_store_that_does_not_find_what_is_to_be_removed_takes_a_checkpoint(
    bucket: Bucket, proxy: FaultyProxy, tmp_path: Path
) -> None:
    mirror = CheckpointMirror(bucket, tmp_path)
    mirror.take_over()
    proxy.fail(REMOVE, "ckpt-1.complete", Fault.NO_SUCH_KEY, times=1)
    saved(mirror, tmp_path, 1)
    assert proxy.is_spent()
    assert mirror.steps() == [1]


@pytest.mark.parametrize(
    ("methods", "part", "fault", "times"),
    [
        (WRITE, "ckpt-1.data", Fault.UNAVAILABLE, 2),
        (WRITE, "ckpt-1.data", Fault.CUT_REQUEST, 1),
        (READ, "ckpt-1.data", Fault.CUT_ANSWER, 1),
        (REMOVE, "ckpt-1.complete", Fault.UNAVAILABLE, 2),
        (REMOVE, "ckpt-1.complete", Fault.CUT_REQUEST, 1),
    ],
)
def test_a_fault_that_passes_loses_nothing(
    bucket: Bucket, proxy: FaultyProxy, tmp_path: Path, methods: frozenset[str], part: str, fault: Fault, times: int
) -> None:
    writer = CheckpointMirror(bucket, tmp_path / "one")
    writer.take_over()
    proxy.fail(methods, part, fault, times)
    saved(writer, tmp_path / "one", 1)
    assert CheckpointMirror(bucket, tmp_path / "two").fetch(1)
    assert proxy.is_spent()
    assert (tmp_path / "two/ckpt-1.data-00000-of-00001").read_bytes() == bytes([1]) * 1000


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.CUT_ANSWER])
def test_a_listing_that_fails_once_is_asked_for_again(bucket: Bucket, proxy: FaultyProxy, fault: Fault) -> None:
    for name in ("a", "b"):
        bucket.write(f"run/{name}", b"one")
    for listed in (
        lambda: [entry.key for entry in bucket.list("")],
        lambda: [f"run/{name}" for name in bucket.children()],
    ):
        proxy.fail(READ, "", fault, times=1)
        assert listed() == ["run/a", "run/b"]
        assert proxy.is_spent()


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.CUT_REQUEST, Fault.LOST_UPLOAD])
def test_a_fault_in_the_middle_of_a_large_file_loses_nothing(
    bucket: Bucket, proxy: FaultyProxy, tmp_path: Path, fault: Fault
) -> None:
    # Several requests, for both libraries.
    content = bytes(range(256)) * (80 * 1024)
    (tmp_path / "large").write_bytes(content)
    proxy.fail(frozenset({"PUT"}), "", fault, times=1)
    bucket.upload(tmp_path / "large", "run/large")
    assert proxy.is_spent()
    proxy.fail(READ, "large", Fault.CUT_ANSWER, times=1)
    bucket.download("run/large", len(content), tmp_path / "copy")
    assert proxy.is_spent()
    assert (tmp_path / "copy").read_bytes() == content


def test_a_large_file_is_uploaded_in_no_more_parts_than_the_store_takes(
    store: Store, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtj_trainer.object_store.s3._PARTS", 3)
    content = bytes(range(256)) * (120 * 1024)
    (tmp_path / "large").write_bytes(content)
    store.proxy.fail(frozenset({"PUT"}), "partNumber=4", Fault.FORBIDDEN, times=100)
    bucket.upload(tmp_path / "large", "run/large")
    assert store.contents.read("run/large") == content


@pytest.mark.parametrize("part", ["ckpt-2.data", "ckpt-2.complete"])
@pytest.mark.parametrize(
    ("fault", "ends", "message"),
    [
        (Fault.UNAVAILABLE, StoreFailed, "does not answer as it should"),
        (Fault.CUT_REQUEST, StoreFailed, "does not answer as it should"),
        (Fault.FORBIDDEN, UsageError, "access denied"),
    ],
)
def test_a_fault_that_stays_ends_in_one_line_and_keeps_the_checkpoint_before(
    impatient: Bucket,
    proxy: FaultyProxy,
    tmp_path: Path,
    part: str,
    fault: Fault,
    ends: type[TrainerError],
    message: str,
) -> None:
    writer = CheckpointMirror(impatient, tmp_path / "one")
    writer.take_over()
    saved(writer, tmp_path / "one", 1)
    proxy.fail(WRITE, part, fault, times=100)
    with pytest.raises(ends, match=message) as ended:
        saved(writer, tmp_path / "one", 2)
    assert "\n" not in str(ended.value)
    reader = CheckpointMirror(impatient, tmp_path / "two")
    assert reader.steps() == [1]
    assert reader.fetch(1)


def test_a_file_that_the_store_forgets_again_and_again_ends_in_one_line(
    bucket: Bucket, proxy: FaultyProxy, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(bytes(20 * 2**20))
    proxy.fail(frozenset({"PUT"}), "", Fault.LOST_UPLOAD, times=100)
    with pytest.raises(StoreFailed, match="does not answer as it should") as ended:
        bucket.upload(tmp_path / "large", "run/large")
    assert "\n" not in str(ended.value)


def exported(directory: Path) -> Path:
    (directory / "variables").mkdir(parents=True)
    (directory / "saved_model.pb").write_bytes(b"graph")
    (directory / "variables/variables.index").write_bytes(b"index")
    return directory


def test_an_export_is_a_new_version_with_a_marker(bucket: Bucket, tmp_path: Path) -> None:
    model = exported(tmp_path / "7")
    bucket.write("run/1/saved_model.pb", b"a part")
    assert export_versions.upload(bucket, model, {"size": 10}) == f"{bucket.location}/2"
    assert export_versions.upload(bucket, model, {"size": 10}) == f"{bucket.location}/3"
    document = json.loads(bucket.read("run/2.complete") or b"")
    assert document == {"size": 10, "path": f"{bucket.location}/2"}
    assert [entry.key for entry in bucket.list("2/")] == ["run/2/saved_model.pb", "run/2/variables/variables.index"]


def test_a_version_that_a_session_exports_is_a_new_one_in_the_bucket(bucket: Bucket, tmp_path: Path) -> None:
    """Its directory is empty at each start, so that each calls its version 1."""
    for version in ("2", "10", "vocabulary"):
        exported(tmp_path / version)
    for _ in range(2):
        export_versions.upload_all(bucket, tmp_path)
    markers = {entry.key for entry in bucket.list("") if entry.key.endswith(".complete")}
    assert markers == {f"run/{name}.complete" for name in ("2", "10", "11", "12", "vocabulary")}
    assert json.loads(bucket.read("run/11.complete") or b"") == {"path": f"{bucket.location}/11"}


@pytest.mark.parametrize("key", ["run/notes//a.txt", "run/notes/a\tb.txt", "run//x", "run/./x"])
def test_an_object_of_others_with_an_odd_name_stops_neither_checkpoints_nor_an_export(
    bucket: Bucket, store: Store, tmp_path: Path, key: str
) -> None:
    store.contents.write(key, b"notes")
    mirror = CheckpointMirror(bucket, tmp_path / "copy")
    mirror.take_over()
    for step in (1, 2):
        saved(mirror, tmp_path / "copy", step)
    mirror.remove(1)
    assert mirror.steps() == [2]
    (tmp_path / "model").mkdir()
    (tmp_path / "model/saved_model.pb").write_bytes(b"graph")
    assert [export_versions.upload(bucket, tmp_path / "model", {}) for _ in range(2)] == [
        f"{bucket.location}/{version}" for version in (1, 2)
    ]
    Bucket.prove(bucket.location, option="--checkpoint-dir", writes=False, retry_seconds=1)
    assert store.contents.read(key) == b"notes"


def test_a_folder_with_the_name_of_a_part_of_a_checkpoint_is_none(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    store.contents.write("run/ckpt-7.complete/notes", b"")
    store.contents.write("run/ckpt-8.index/notes", b"")
    mirror = CheckpointMirror(bucket, tmp_path)
    mirror.take_over()
    assert mirror.steps() == []
    assert len(store.contents.list_keys("run/ckpt-")) == 2


@pytest.mark.parametrize("status", [501, 400])
def test_a_store_that_refuses_conditions_takes_an_export_and_keeps_the_version_before(
    bucket: Bucket, store: Store, tmp_path: Path, status: int
) -> None:
    store.proxy.refuse_conditions(status)
    (tmp_path / "saved_model.pb").write_bytes(b"graph")
    for version in (1, 2):
        assert export_versions.upload(bucket, tmp_path, {}) == f"{bucket.location}/{version}"
    assert not bucket.create("run/1.writer", b"another")
    assert bucket.read("run/1.writer") != b"another"


def test_two_exports_at_once_get_a_version_each(bucket: Bucket, tmp_path: Path) -> None:
    assert bucket.create("run/1.writer", b"{}")
    bucket.delete("run/1.writer")
    model = exported(tmp_path / "7")
    with ThreadPoolExecutor() as pool:
        urls = list(pool.map(lambda _: export_versions.upload(bucket, model, {}), range(4)))
    assert sorted(urls) == [f"{bucket.location}/{version}" for version in range(1, 5)]


@pytest.mark.parametrize("part", ["1.writer", "1/saved_model.pb", "1.complete"])
@pytest.mark.parametrize(
    ("fault", "message"), [(Fault.UNAVAILABLE, "does not answer as it should"), (Fault.FORBIDDEN, "access denied")]
)
def test_an_export_that_cannot_be_uploaded_has_no_marker_and_ends_in_one_line(
    impatient: Bucket, proxy: FaultyProxy, tmp_path: Path, part: str, fault: Fault, message: str
) -> None:
    proxy.fail(WRITE, part, fault, times=10_000)
    with pytest.raises(NotSaved, match=f"{message}.*exports it again") as ended:
        export_versions.upload(impatient, exported(tmp_path / "7"), {})
    assert "\n" not in str(ended.value)
    assert impatient.read("run/1.complete") is None


@pytest.mark.parametrize(
    ("role", "keeps", "ended", "raised"),
    [
        ("worker", True, None, NotSaved),
        ("worker", True, ValueError("bad step"), ValueError),
        ("worker", False, None, None),
        ("evaluator", True, None, None),
    ],
)
def test_logs_that_do_not_reach_the_bucket_at_the_end_are_named(
    store: Store,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    role: str,
    keeps: bool,
    ended: Exception | None,
    raised: type[Exception] | None,
) -> None:
    url = store.url("run/logs")
    tasks = {"cluster": {"worker": ["127.0.0.1:2222"]}, "task": {"type": role, "index": 0}}
    environ = {"DTJ_STORE_RETRY_SECONDS": "1", "TF_CONFIG": json.dumps(tasks)}
    checkpoints = [f"--checkpoint-dir={tmp_path}"] if keeps else []
    config = parse([f"--log-dir={url}", f"--store-cache={tmp_path}", *checkpoints], environ)
    assert config.log_dir is not None
    config.log_dir.mkdir(parents=True)
    store.proxy.go_away()
    with pytest.raises(raised) if raised else nullcontext() as found, copied_logs(config):
        (config.log_dir / "result.json").write_text("{}")
        if ended:
            raise ended
    lines = [record.message for record in caplog.records]
    (line,) = [str(found.value)] if raised is NotSaved else lines
    assert line.startswith(f"the last logs and result.json are not in {url}: --log-dir={url}: the object store does")


def test_a_directory_follows_the_logs_of_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    copy = FolderCopy(bucket, tmp_path)
    bucket.write("run/train/events.out.tfevents.1", b"one")
    bucket.write("run/result.json", b"{1}")
    copy.update()
    # TensorBoard reads on in the file that it has open.
    with (tmp_path / "train/events.out.tfevents.1").open("rb") as file:
        assert file.read() == b"one"
        bucket.write("run/train/events.out.tfevents.1", b"onetwo")
        bucket.write("run/result.json", b"{12}")
        copy.update()
        assert file.read() == b"two"
    assert (tmp_path / "result.json").read_bytes() == b"{12}"


def test_objects_that_stand_for_empty_folders_are_no_logs(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    store.contents.write("run/train/", b"")
    store.contents.write("run/train/events.out.tfevents.1", b"one")
    FolderCopy(bucket, tmp_path).update()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["events.out.tfevents.1"]


def test_tensorboard_gets_a_directory_in_place_of_a_url(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    bucket.write("run/logs/events.out.tfevents.1", b"one")
    followed: list[FolderCopy] = []
    first, port = with_local_copies([f"--logdir={bucket.location}/logs", "--port=6006"], follow=followed.append)
    assert port == "--port=6006"
    assert (Path(first.removeprefix("--logdir=")) / "events.out.tfevents.1").read_bytes() == b"one"
    assert len(followed) == 1
    with pytest.raises(UsageError, match="there is no bucket absent"):
        with_local_copies([f"--logdir={bucket.location.scheme}://absent/logs"])
