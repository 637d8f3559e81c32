"""Checkpoints in a bucket: what a marker may name, and which local copy counts as the one in the bucket."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtj_trainer.checkpoint.mirror import CheckpointMirror
from dtj_trainer.config.store_url import Location
from dtj_trainer.object_store.bucket import Bucket, Entry

pytestmark = pytest.mark.unit

INDEX, WEIGHTS = "ckpt-7.index", "ckpt-7.data-00000-of-00001"


class Memory(Bucket):
    """A bucket in this process."""

    def __init__(self) -> None:
        self.location, self.retry_seconds = Location.of("s3://team/run"), 1
        self.objects: dict[str, bytes] = {}
        self.downloads: list[str] = []

    def list(self, prefix: str) -> Iterator[Entry]:
        wanted = self.location.below(prefix)
        yield from (Entry(key, len(text), "1") for key, text in sorted(self.objects.items()) if key.startswith(wanted))

    def read(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def write(self, key: str, content: bytes) -> None:
        self.objects[key] = content

    def delete(self, *keys: str) -> None:
        for key in keys:
            self.objects.pop(key, None)

    def upload(self, path: Path, key: str) -> None:
        self.objects[key] = path.read_bytes()

    def download(self, key: str, size: int, path: Path, *, start: int = 0) -> None:
        self.downloads.append(key)
        path.write_bytes(self.objects[key])


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def mirror(memory: Memory, tmp_path: Path) -> CheckpointMirror:
    return mirror_in(memory, tmp_path / "cache")


def mirror_in(memory: Memory, directory: Path) -> CheckpointMirror:
    directory.mkdir(exist_ok=True)
    return CheckpointMirror(memory, directory)


def save(memory: Memory, directory: Path, weights: bytes) -> None:
    mirror = mirror_in(memory, directory)
    mirror.take_over()
    (directory / INDEX).write_bytes(b"index")
    (directory / WEIGHTS).write_bytes(weights)
    mirror.upload(7)


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
    memory.write("run/ckpt-7.complete", json.dumps({"step": 7, "files": {INDEX: 5, named: 4}}).encode())
    memory.write(f"run/{INDEX}", b"index")
    with caplog.at_level(logging.WARNING):
        assert not mirror.fetch(7)
    assert victim.read_text() == "mine"
    assert "checkpoint s3://team/run/ckpt-7: its marker cannot be used" in caplog.text
    assert not memory.downloads


@pytest.mark.parametrize(
    "marker",
    [
        b"",
        b"[]",
        b"{}",
        b'{"files": []}',
        b'{"files": {}}',
        b'{"files": {"ckpt-7.index": "many"}}',
        b'{"files": {"ckpt-7.index": Infinity}}',
        b'{"files": {"ckpt-7.index": 5}, "digests": null}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_marker_that_is_none_is_not_used(memory: Memory, mirror: CheckpointMirror, marker: bytes) -> None:
    memory.write("run/ckpt-7.complete", marker)
    assert not mirror.fetch(7)


def test_a_local_copy_of_the_same_sizes_is_not_taken_for_the_checkpoint(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path
) -> None:
    save(memory, tmp_path / "writer", b"weights of this run")
    (tmp_path / "cache" / INDEX).write_bytes(b"index")
    (tmp_path / "cache" / WEIGHTS).write_bytes(b"WEIGHTS OF ANOTHER ")
    assert mirror.fetch(7)
    assert (tmp_path / "cache" / WEIGHTS).read_bytes() == b"weights of this run"


def test_a_local_copy_of_the_same_content_is_not_downloaded_again(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path
) -> None:
    save(memory, tmp_path / "writer", b"weights")
    assert mirror.fetch(7)
    memory.downloads.clear()
    assert mirror.fetch(7)
    assert not memory.downloads


def test_a_checkpoint_that_is_written_anew_while_it_is_read_is_not_used(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(memory, tmp_path / "writer", b"weights")
    (tmp_path / "cache" / INDEX).write_bytes(b"that of an earlier run")
    memory.write(f"run/{WEIGHTS}", b"changed")
    with caplog.at_level(logging.WARNING):
        assert not mirror.fetch(7)
        assert not mirror.fetch(7)
    assert not (tmp_path / "cache" / INDEX).exists()
    (line,) = caplog.messages
    assert not any(path.is_dir() for path in (tmp_path / "cache").iterdir())
    assert line.startswith("checkpoint s3://team/run/ckpt-7: its files are not those that its marker names")


def test_the_marker_of_an_older_version_names_no_digests_and_is_read(
    memory: Memory, mirror: CheckpointMirror, tmp_path: Path
) -> None:
    save(memory, tmp_path / "writer", b"weights")
    document = json.loads(memory.objects["run/ckpt-7.complete"])
    del document["digests"]
    memory.write("run/ckpt-7.complete", json.dumps(document).encode())
    assert mirror.fetch(7)
    assert (tmp_path / "cache" / WEIGHTS).read_bytes() == b"weights"
