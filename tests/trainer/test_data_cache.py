"""Data of a bucket: the local copies that are read, against servers that speak the protocols of both kinds of store."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

from dtj_trainer.config.store_url import Location, StorePolicy
from dtj_trainer.errors import UsageError
from dtj_trainer.object_store import data_cache
from dtj_trainer.object_store.backend import Entry
from dtj_trainer.object_store.bucket import Bucket, StoreFailed
from trainer.adversaries import attempts
from trainer.cluster import SOURCE
from trainer.stores import Store


@pytest.fixture
def bucket(store: Store) -> Bucket:
    return Bucket(Location.of(store.url("run")), option="--data-dir", retry_seconds=1)


def test_data_are_read_once_and_again_when_they_change(bucket: Bucket, tmp_path: Path) -> None:
    store = StorePolicy(cache=tmp_path, retry_seconds=2)
    bucket.write("run/data/a.csv", b"one")
    path = Path(data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=store)) / "a.csv"
    assert path.read_bytes() == b"one"
    before = path.stat()
    data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=store)
    assert path.stat().st_ino == before.st_ino
    bucket.write("run/data/a.csv", b"two")
    data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=store)
    assert path.read_bytes() == b"two"
    other = StorePolicy(cache=tmp_path / "other", retry_seconds=2)
    again = Path(data_cache.fetch(f"{bucket.location}/data/a.csv", option="--data-dir", store=other))
    assert again.stat().st_mtime_ns == path.stat().st_mtime_ns != before.st_mtime_ns
    pattern = data_cache.fetch(f"{bucket.location}/data/*.csv", option="--data-dir", store=store)
    assert pattern.endswith("/*.csv")
    shutil.rmtree(tmp_path)
    with pytest.raises(UsageError, match="no files there"):
        data_cache.fetch(f"{bucket.location}/none", option="--data-dir", store=store)


KILLED = """
import os, pathlib, signal
from dtj_trainer.local_files import draft_in
with draft_in(pathlib.Path("data"), ".draft-") as drafts:
    drafts.mkdir()
    (drafts / "part").write_bytes(b"a part")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_start_has_read_in_part_is_removed_by_the_next(bucket: Bucket, tmp_path: Path) -> None:
    bucket.write("run/data/a.csv", b"one")
    environ = {**os.environ, "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env=environ, check=False)
    assert [path.read_bytes() for path in tmp_path.rglob("part")] == [b"a part"]
    data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=StorePolicy(cache=tmp_path, retry_seconds=2))
    names = sorted(path.name for path in (tmp_path / "data").rglob("*") if path.is_file() or path.name[0] == ".")
    assert names == ["a.csv", "a.csv"], "a copy and the note of its version"


@pytest.mark.parametrize("seed", [107])
def test_a_second_attempt_on_a_bucket_that_has_changed_or_refuses_for_a_while_reads_each_example_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = attempts.compose(seed, tmp_path, store)
    verdict = attempts.judge(folder)
    assert not verdict.fault, f"{folder}: {verdict}"


def test_an_object_has_one_copy_by_whichever_url_it_is_named(bucket: Bucket, tmp_path: Path) -> None:
    store = StorePolicy(cache=tmp_path, retry_seconds=2)
    bucket.write("run/data/test/a.csv", b"one")
    bucket.write("run/data/b.csv", b"two")
    names = ("data", "data/test", "data//test/", "data/*/*.csv", "data/test/a.csv")
    whole, *parts = (data_cache.fetch(f"{bucket.location}/{name}", option="--data-dir", store=store) for name in names)
    assert sorted(p.relative_to(whole).as_posix() for p in Path(whole).rglob("*.csv")) == ["b.csv", "test/a.csv"]
    assert {str(Path(found)) for part in parts for found in (glob(f"{part}/*.csv") or glob(part))} == {
        f"{whole}/test/a.csv"
    }
    with pytest.raises(UsageError, match=r"\. and \.\. lead nowhere in a bucket"):
        data_cache.fetch(f"{bucket.location}/data/../test", option="--data-dir", store=store)


def test_data_of_a_pattern_that_are_no_longer_in_the_bucket_are_not_read(bucket: Bucket, tmp_path: Path) -> None:
    def read() -> list[str]:
        store = StorePolicy(cache=tmp_path, retry_seconds=2)
        return sorted(
            Path(path).name for path in glob(data_cache.fetch(f"{bucket.location}/*.csv", option="--data", store=store))
        )

    for name in ("run/a.csv", "run/b.csv"):
        bucket.write(name, b"1,2")
    assert read() == ["a.csv", "b.csv"]
    bucket.delete("run/b.csv")
    assert read() == ["a.csv"]


def test_an_object_whose_name_could_be_a_pattern_is_that_object_while_it_is_there(
    bucket: Bucket, tmp_path: Path
) -> None:
    store = StorePolicy(cache=tmp_path / "cache", retry_seconds=5)
    for name in ("x[1].csv", "x1.csv"):
        bucket.write(f"run/{name}", name.encode())

    def read(name: str) -> str:
        path = Path(data_cache.fetch(f"{bucket.location}/{name}", option="--data", store=store))
        # As data are found: what is there is no pattern.
        return (path if path.exists() else Path(*glob(str(path)))).read_text()

    assert [read("x1.csv"), read("x[1].csv")] == ["x1.csv", "x[1].csv"]
    copies = {path.name for path in (tmp_path / "cache" / "data").rglob("*.csv")}
    assert copies == {"x[1].csv", "x1.csv"}
    bucket.delete("run/x[1].csv")
    assert read("x[1].csv") == "x1.csv"


def test_one_object_is_found_however_many_there_are_beside_it(
    bucket: Bucket, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, listed = StorePolicy(cache=tmp_path, retry_seconds=2), []
    for name in ("a.csv", "a.csv.old", "b.csv"):
        store.contents.write(f"run/{name}", name.encode())
    by_listing = {entry.key: entry for entry in bucket.list("")}
    list_all = Bucket.list

    def counted(bucket: Bucket, prefix: str) -> Iterator[Entry]:
        for entry in list_all(bucket, prefix):
            listed.append(entry)
            yield entry

    monkeypatch.setattr(Bucket, "list", counted)
    path = Path(data_cache.fetch(f"{bucket.location}/a.csv", option="--data-dir", store=policy))
    assert (path.name, path.read_text(), listed) == ("a.csv", "a.csv", [])
    assert bucket.find("run/a.csv") == by_listing["run/a.csv"]
    assert bucket.find("run/a") is None


def test_each_piece_of_an_object_that_is_copied_is_progress(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    store.contents.write("run/data/a.csv", bytes(20 * 2**20))
    policy, pieces = StorePolicy(cache=tmp_path, retry_seconds=5), []
    data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=policy, moved=lambda: pieces.append(1))
    assert len(pieces) == 3


def test_objects_that_stand_for_empty_folders_are_no_data(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    policy = StorePolicy(cache=tmp_path, retry_seconds=2)
    for key in ("run/data/", "run/data/cat/"):
        store.contents.write(key, b"")
    store.contents.write("run/data/cat/a.csv", b"one")
    path = Path(data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=policy))
    assert [one for one in path.rglob("*") if one.is_file()] == [path / "cat/a.csv"]


@pytest.mark.parametrize("key", ["run/data/a//b.csv", "run/data/./b.csv"])
def test_a_name_that_no_file_has_is_one_line_with_the_object(
    bucket: Bucket, store: Store, tmp_path: Path, key: str
) -> None:
    policy = StorePolicy(cache=tmp_path, retry_seconds=2)
    store.contents.write("run/data/a/b.csv", b"one")
    store.contents.write(key, b"two")
    with pytest.raises(UsageError, match=rf"^--data-dir=\S+: [^\n]*{re.escape(key)}[^\n]*; rename it$"):
        data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=policy)


def test_a_name_that_is_too_long_for_a_file_is_one_line(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    policy = StorePolicy(cache=tmp_path, retry_seconds=2)
    store.contents.write(f"run/data/{'x' * 252}.csv", b"one")
    wanted = rf"^--data-dir=\S+: '{'x' * 40}'\.\.\. has 256 bytes, too many for the name of a file in \S+; rename the"
    with pytest.raises(UsageError, match=wanted) as refusal:
        data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=policy)
    assert not refusal.value.restart_may_help


def test_an_object_that_is_a_folder_of_others_is_one_line(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    policy = StorePolicy(cache=tmp_path, retry_seconds=2)
    for key in ("run/data/a.csv", "run/data/a.csv/b.csv"):
        store.contents.write(key, b"one")
    with pytest.raises(UsageError, match=r"^--data-dir=\S+: 'run/data/a.csv' is an object and a folder of others; "):
        data_cache.fetch(f"{bucket.location}/data", option="--data-dir", store=policy)


@pytest.mark.parametrize("size", [20, 4], ids=["as large", "smaller than what was read"])
def test_data_that_are_replaced_while_they_are_read_are_no_copy_of_both_versions(
    store: Store, tmp_path: Path, size: int
) -> None:
    old, new = b"a" * (20 * 2**20), b"b" * (size * 2**20)
    store.contents.write("data/a.csv", old)
    store.proxy.after_reading("data/a.csv", lambda: store.contents.write("data/a.csv", new))
    policy = StorePolicy(cache=tmp_path, retry_seconds=30)
    with pytest.raises(StoreFailed, match=r"data/a\.csv changed while it was read; start the job again"):
        data_cache.fetch(store.url("data"), option="--data-dir", store=policy)
    path = Path(data_cache.fetch(store.url("data"), option="--data-dir", store=policy)) / "a.csv"
    assert path.read_bytes() == new
