"""Directories in a shared place: local copies of object stores, and the mark of a worker that is asked to stop."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dtj_trainer.config.cluster import Address
from dtj_trainer.config.parsing import parse
from dtj_trainer.config.store_url import default_cache
from dtj_trainer.errors import UsageError
from dtj_trainer.object_store import data_cache
from dtj_trainer.object_store.bucket import Bucket
from dtj_trainer.object_store.log_folder import with_local_copies
from dtj_trainer.pipeline_parallel.worker import leaving_mark, prepare_mark
from dtj_trainer.process.output_directories import check_outputs

HERE = Address("127.0.0.1", 10005)


@pytest.fixture(autouse=True)
def shared_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_local_copies_lie_where_nobody_else_can_write(shared_directory: Path) -> None:
    store = parse([], {}).store
    store.prepare_cache()
    store.prepare_cache()
    assert store.cache.parent == shared_directory
    assert store.cache.stat().st_mode & 0o777 == 0o700


def test_the_mark_of_a_job_lies_where_nobody_else_can_write_and_a_start_removes_it(shared_directory: Path) -> None:
    mark = leaving_mark(HERE, job_uid="6f0a")
    prepare_mark(mark)
    mark.touch()
    assert mark == shared_directory / "dtj-6f0a" / "stage-10005"
    assert mark.parent.stat().st_mode & 0o777 == 0o700
    assert leaving_mark(HERE, job_uid="6f0b") != mark
    prepare_mark(mark)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["open to others", "a link", "somebody else's"])
@pytest.mark.parametrize(
    ("use", "remedy"),
    [
        (lambda: check_outputs(parse(["--checkpoint-dir=s3://b/x"], {})), "--store-cache"),
        (lambda: data_cache.fetch("s3://b/x", option="--data-dir", store=parse([], {}).store), "--store-cache"),
        (lambda: with_local_copies(["--logdir=s3://b/x"]), "--store-cache"),
        (lambda: prepare_mark(leaving_mark(HERE, job_uid="6f0a")), "set TMPDIR to a directory of your own$"),
    ],
    ids=["checkpoints", "data", "logs", "the mark"],
)
def test_a_directory_that_others_may_write_to_is_refused_in_one_line_with_the_remedy(
    shared_directory: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[], object], remedy: str, kind: str
) -> None:
    place = default_cache() if "store" in remedy else leaving_mark(HERE, job_uid="6f0a").parent
    match kind:
        case "open to others":
            place.mkdir()
            place.chmod(0o777)
        case "a link":
            (shared_directory / "elsewhere").mkdir(0o700)
            place.symlink_to(shared_directory / "elsewhere")
        case _:
            place.mkdir(0o700)
            monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    monkeypatch.setattr(Bucket, "prove", lambda *_, **__: pytest.fail("the store was used before"))
    with pytest.raises(UsageError, match=rf"^{place}: cannot be used .*\(.*\); .*{remedy}"):
        use()


def test_a_file_system_without_a_place_for_temporary_files_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc", "/none"])
    with pytest.raises(UsageError) as refusal:
        parse(["--epochs=1"], {})
    assert str(refusal.value) == (
        "temporary files: No usable temporary directory found in ['/proc', '/none']; mount a volume at /tmp, such as "
        "an emptyDir, or set TMPDIR to a directory that can be written and has room"
    )


def test_a_directory_that_an_option_names_may_be_shared(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    parse([f"--store-cache={tmp_path}"], {}).store.prepare_cache()
