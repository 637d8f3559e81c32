"""The mark by which a worker of a pipeline says that it was asked to stop, on a machine that others use, too."""

import tempfile
from pathlib import Path

import pytest

from dtj_trainer.config.cluster import Address
from dtj_trainer.errors import UsageError
from dtj_trainer.pipeline_parallel.worker import leaving_mark, prepare_mark

HERE = Address("127.0.0.1", 10005)


@pytest.fixture(autouse=True)
def shared_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_mark_of_a_job_lies_where_nobody_else_can_write_and_a_start_removes_it(
    shared_directory: Path,
) -> None:
    mark = leaving_mark(HERE, job_uid="6f0a")
    prepare_mark(mark)
    mark.touch()
    assert mark == shared_directory / "dtj-6f0a" / "stage-10005"
    assert mark.parent.stat().st_mode & 0o777 == 0o700
    assert leaving_mark(HERE, job_uid="6f0b") != mark
    prepare_mark(mark)
    assert not mark.exists()


def test_a_directory_that_others_may_write_to_is_refused_in_one_line_with_the_remedy() -> None:
    mark = leaving_mark(HERE, job_uid="")
    mark.parent.mkdir()
    mark.parent.chmod(0o777)
    with pytest.raises(UsageError, match=rf"^{mark.parent}: cannot be used .*; set TMPDIR to a directory of your own$"):
        prepare_mark(mark)
