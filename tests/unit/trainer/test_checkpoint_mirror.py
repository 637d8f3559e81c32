"""Checkpoints in a bucket: what a marker may name, and which local copy counts as the one in the bucket."""

import errno
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtj_trainer.checkpoint.mirror import CheckpointMirror
from dtj_trainer.config.store_url import Location
from dtj_trainer.errors import NotSaved, UsageError
from dtj_trainer.object_store.backend import Part
from dtj_trainer.object_store.bucket import Bucket

INDEX, WEIGHTS = "ckpt-7.index", "ckpt-7.data-00000-of-00001"
MARKER = "run/writer.json"


class Memory:
    """The objects of a bucket, in this process."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.read_parts: list[str] = []

    def children(self, prefix: str) -> Iterator[str]:
        yield from (key for key in sorted(self.objects) if key.startswith(prefix))

    def read(self, key: str) -> bytes:
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key]

    def read_part(self, key: str, start: int, end: int) -> Part:
        self.read_parts.append(key)
        content = self.read(key)
        return Part(content[start:end], str(hash(content)))

    def write(self, key: str, content: bytes) -> None:
        self.objects[key] = content

    def create(self, key: str, content: bytes) -> bool:
        return self.objects.setdefault(key, content) is content

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is None:
            raise FileNotFoundError(key)

    def upload(self, path: Path, key: str) -> None:
        self.objects[key] = path.read_bytes()


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory()
    monkeypatch.setattr(Bucket, "_open", lambda *_: memory)
    return memory


@pytest.fixture
def mirror(memory: Memory, tmp_path: Path) -> CheckpointMirror:
    return mirror_in(tmp_path / "cache")


def mirror_in(directory: Path) -> CheckpointMirror:
    directory.mkdir(exist_ok=True)
    return CheckpointMirror(Bucket(Location.of("s3://team/run"), option="--checkpoint-dir", retry_seconds=1), directory)


def save(directory: Path, weights: bytes) -> None:
    mirror = mirror_in(directory)
    mirror.take_over()
    put(mirror, directory, weights)


def put(mirror: CheckpointMirror, directory: Path, weights: bytes = b"weights") -> None:
    (directory / INDEX).write_bytes(b"index")
    (directory / WEIGHTS).write_bytes(weights)
    mirror.upload(7)


def test_a_folder_with_checkpoints_of_others_is_refused_and_stays_as_it_is(
    memory: Memory, mirror: CheckpointMirror
) -> None:
    """TensorFlow's CheckpointManager names its files so."""
    memory.objects = {f"run/{name}": b"theirs" for name in (INDEX, WEIGHTS, "checkpoint")}
    before = dict(memory.objects)
    with pytest.raises(UsageError, match=r"checkpoint s3://team/run/ckpt-7 is not of this trainer.*an empty --check"):
        mirror.take_over()
    assert memory.objects == before


@pytest.mark.parametrize("left", [MARKER, "run/ckpt-3.complete"])
def test_what_a_killed_run_left_is_removed_although_a_rule_of_the_bucket_has_removed_one_of_its_markers(
    memory: Memory, mirror: CheckpointMirror, left: str
) -> None:
    memory.objects = {f"run/{INDEX}": b"half", left: b"{}"}
    mirror.take_over()
    assert memory.objects.keys() == {MARKER, left}


def test_a_writer_marker_that_a_rule_of_the_bucket_removes_is_written_again_and_the_checkpoint_is_saved(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.take_over()
    own = memory.objects.pop(MARKER)
    put(mirror, tmp_path / "cache")
    assert mirror.steps() == [7]
    assert memory.objects[MARKER] == own

    upload = memory.upload
    monkeypatch.setattr(memory, "upload", lambda path, key: (memory.objects.pop(MARKER, None), upload(path, key)))
    put(mirror, tmp_path / "cache")
    assert mirror.steps() == [7]
    assert memory.objects[MARKER] == own


def test_a_run_that_another_one_has_stopped_does_not_write_its_marker_again_where_there_is_none(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path
) -> None:
    mirror.take_over()
    memory.objects[MARKER] = b'{"host": "there"}'
    for _ in range(2):
        with pytest.raises(NotSaved, match="step 7 is not saved: another run, on there, writes there since"):
            put(mirror, tmp_path / "cache")
        memory.objects.pop(MARKER, None)
    assert not memory.objects


def test_of_two_runs_that_find_no_writer_marker_at_once_one_saves(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.take_over()
    del memory.objects[MARKER]
    create = memory.create
    other = b'{"host": "there"}'
    monkeypatch.setattr(memory, "create", lambda key, content: (create(key, other), create(key, content))[1])
    with pytest.raises(NotSaved, match="another run, on there, writes there since"):
        put(mirror, tmp_path / "cache")
    assert memory.objects == {MARKER: other}


@pytest.mark.parametrize(
    "name",
    [
        "{absolute}", "../../home/authorized_keys", "..", "", "ckpt-7.index/../../home/authorized_keys", "ckpt-8.index",
        "writer.json", "ckpt-7.index\n", "ckpt-7.complete",
    ],
)  # fmt: skip
def test_a_marker_that_names_another_file_of_this_machine_is_not_used(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    victim = tmp_path / "home" / "authorized_keys"
    victim.parent.mkdir()
    victim.write_text("mine")
    named = name.format(absolute=victim)
    document = {"step": 7, "files": {INDEX: 5, named: 4}, "digests": {INDEX: "0", named: "0"}}
    memory.write("run/ckpt-7.complete", json.dumps(document).encode())
    memory.write(f"run/{INDEX}", b"index")
    with caplog.at_level(logging.WARNING):
        assert not mirror.fetch(7)
    assert victim.read_text() == "mine"
    assert "checkpoint s3://team/run/ckpt-7: its marker cannot be used" in caplog.text
    assert not memory.read_parts


@pytest.mark.parametrize(
    "marker",
    [
        b"",
        b"[]",
        b"{}",
        b'{"files": []}',
        b'{"files": {}}',
        b'{"files": {"ckpt-7.index": 5}}',
        b'{"files": {"ckpt-7.index": "many"}, "digests": {"ckpt-7.index": "0"}}',
        b'{"files": {"ckpt-7.index": Infinity}, "digests": {"ckpt-7.index": "0"}}',
        b'{"files": {"ckpt-7.index": 5}, "digests": null}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_marker_that_is_none_is_not_used(memory: Memory, mirror: CheckpointMirror, marker: bytes) -> None:
    memory.write("run/ckpt-7.complete", marker)
    assert not mirror.fetch(7)


def test_a_local_copy_of_the_same_sizes_is_not_taken_for_the_checkpoint(
    mirror: CheckpointMirror, tmp_path: Path
) -> None:
    save(tmp_path / "writer", b"weights of this run")
    (tmp_path / "cache" / INDEX).write_bytes(b"index")
    (tmp_path / "cache" / WEIGHTS).write_bytes(b"WEIGHTS OF ANOTHER ")
    assert mirror.fetch(7)
    assert (tmp_path / "cache" / WEIGHTS).read_bytes() == b"weights of this run"


def test_a_local_copy_of_the_same_content_is_not_downloaded_again(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path
) -> None:
    save(tmp_path / "writer", b"weights")
    assert mirror.fetch(7)
    memory.read_parts.clear()
    assert mirror.fetch(7)
    assert not memory.read_parts


def test_a_checkpoint_that_is_written_anew_while_it_is_read_is_not_used(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path / "writer", b"weights")
    (tmp_path / "cache" / INDEX).write_bytes(b"that of an earlier run")
    memory.write(f"run/{WEIGHTS}", b"changed")
    with caplog.at_level(logging.WARNING):
        assert not mirror.fetch(7)
        assert not mirror.fetch(7)
    assert not (tmp_path / "cache" / INDEX).exists()
    (line,) = caplog.messages
    assert not any(path.is_dir() for path in (tmp_path / "cache").iterdir())
    assert line.startswith("checkpoint s3://team/run/ckpt-7: its files are not those that its marker names")


def test_a_local_copy_for_which_there_is_no_room_is_one_line_with_the_remedy(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "writer", b"weights")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(memory, "read_part", full)
    with pytest.raises(
        NotSaved, match=r"^checkpoint of step 7: [^\n]*No space left on device[^\n]* with --store-cache$"
    ):
        mirror.fetch(7)
    assert not any(path.is_dir() for path in (tmp_path / "cache").iterdir())


FOREIGN = (
    "run/ckpt-best/model.keras", "run/ckpt-final.keras", "run/ckpt-120.tar.gz", "run/ckpt-notes.txt", "run/ckpt-5.h5",
    "run/ckpt-old/ckpt-5.index", "run/ckpt-old/ckpt-5.complete", "run/ckpt-5.index.bak", "run/ckpt-007.index",
    "run/ckpt-5.data-0-of-1", "run/ckpt-5.complete.json", "run/ckpt-5/ckpt-5.index", "run/ckpt-\u0663.index",
)  # fmt: skip


def test_objects_with_other_names_than_those_of_checkpoints_are_never_removed(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path
) -> None:
    for key in (*FOREIGN, "run/ckpt-5.index", "run/ckpt-5.data-00000-of-00001", MARKER):
        memory.write(key, b"of a user")
    save(tmp_path / "writer", b"weights")
    assert mirror.steps() == [7]
    mirror.remove(7)
    mirror.remove(5)
    assert {key for key in memory.objects if key != MARKER} == set(FOREIGN)
