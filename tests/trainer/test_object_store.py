"""Checkpoints, data and logs in a bucket, against a server that speaks the protocol of S3."""

import logging
import shutil
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from dtj_trainer.object_store import data_cache
from dtj_trainer.object_store.bucket import Bucket, StoreFailed
from dtj_trainer.object_store.checkpoints import CheckpointMirror
from dtj_trainer.object_store.url import Location
from dtj_trainer.process.errors import NotSaved, TrainerError, UsageError
from support.faulty_store import Fault, FaultyProxy

pytestmark = pytest.mark.trainer

PLACE = Location("s3", "bucket", "run")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    import boto3

    client = boto3.client("s3", region_name="us-east-1", endpoint_url=f"http://{host}:{port}")
    client.create_bucket(Bucket="bucket")
    try:
        with FaultyProxy(host, port).serving() as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
            yield proxy
    finally:
        for entry in client.list_objects_v2(Bucket="bucket").get("Contents", ()):
            client.delete_object(Bucket="bucket", Key=entry["Key"])
        client.delete_bucket(Bucket="bucket")
        server.stop()


@pytest.fixture
def bucket(proxy: FaultyProxy) -> Bucket:
    return Bucket(PLACE, option="--checkpoint-dir", retry_seconds=2)


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
    bucket.write("run/ckpt-7.index", b"index")
    mirror = CheckpointMirror(bucket, tmp_path)
    assert mirror.steps() == []
    mirror.take_over()
    assert [entry.key for entry in bucket.list("")] == ["run/writer.json"]


def test_of_two_runs_the_later_one_writes(bucket: Bucket, tmp_path: Path) -> None:
    first, second = (CheckpointMirror(bucket, tmp_path / name) for name in "ab")
    first.take_over()
    saved(first, tmp_path / "a", 1)
    second.take_over()
    with pytest.raises(NotSaved, match="another run"):
        saved(first, tmp_path / "a", 2)
    assert second.steps() == [1]


def test_data_are_read_once_and_again_when_they_change(bucket: Bucket, tmp_path: Path) -> None:
    environ = {"DTJ_STORE_CACHE": str(tmp_path)}
    bucket.write("run/data/a.csv", b"one")
    path = Path(data_cache.fetch("s3://bucket/run/data", option="--data-dir", environ=environ)) / "a.csv"
    assert path.read_bytes() == b"one"
    before = path.stat().st_ino
    data_cache.fetch("s3://bucket/run/data", option="--data-dir", environ=environ)
    assert path.stat().st_ino == before
    bucket.write("run/data/a.csv", b"two")
    data_cache.fetch("s3://bucket/run/data", option="--data-dir", environ=environ)
    assert path.read_bytes() == b"two"
    pattern = data_cache.fetch("s3://bucket/run/data/*.csv", option="--data-dir", environ=environ)
    assert pattern.endswith("/*.csv")
    shutil.rmtree(tmp_path)
    with pytest.raises(UsageError, match="no files there"):
        data_cache.fetch("s3://bucket/run/none", option="--data-dir", environ=environ)


def test_data_of_a_pattern_that_are_no_longer_in_the_bucket_are_not_read(bucket: Bucket, tmp_path: Path) -> None:
    def read() -> list[str]:
        environ = {"DTJ_STORE_CACHE": str(tmp_path)}
        return sorted(
            Path(path).name for path in glob(data_cache.fetch(f"{PLACE}/*.csv", option="--data", environ=environ))
        )

    for name in ("run/a.csv", "run/b.csv"):
        bucket.write(name, b"1,2")
    assert read() == ["a.csv", "b.csv"]
    bucket.delete("run/b.csv")
    assert read() == ["a.csv"]


def test_a_missing_bucket_is_refused_at_the_start(bucket: Bucket) -> None:
    with pytest.raises(UsageError, match="there is no bucket absent"):
        Bucket.proved(Location("s3", "absent", ""), option="--checkpoint-dir", writes=True)


@pytest.mark.parametrize(
    ("method", "fault", "times"),
    [("PUT", Fault.UNAVAILABLE, 2), ("PUT", Fault.CUT_REQUEST, 1), ("GET", Fault.CUT_ANSWER, 1)],
)
def test_a_fault_that_passes_loses_nothing(
    bucket: Bucket, proxy: FaultyProxy, tmp_path: Path, method: str, fault: Fault, times: int
) -> None:
    writer = CheckpointMirror(bucket, tmp_path / "one")
    writer.take_over()
    proxy.fail(method, "ckpt-1.data", fault, times)
    saved(writer, tmp_path / "one", 1)
    assert CheckpointMirror(bucket, tmp_path / "two").fetch(1)
    assert proxy.is_spent()
    assert (tmp_path / "two/ckpt-1.data-00000-of-00001").read_bytes() == bytes([1]) * 1000


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
    bucket: Bucket, proxy: FaultyProxy, tmp_path: Path, part: str, fault: Fault, ends: type[TrainerError], message: str
) -> None:
    writer = CheckpointMirror(bucket, tmp_path / "one")
    writer.take_over()
    saved(writer, tmp_path / "one", 1)
    proxy.fail("PUT", part, fault, times=100)
    with pytest.raises(ends, match=message) as ended:
        saved(writer, tmp_path / "one", 2)
    assert "\n" not in str(ended.value)
    reader = CheckpointMirror(bucket, tmp_path / "two")
    assert reader.steps() == [1]
    assert reader.fetch(1)
