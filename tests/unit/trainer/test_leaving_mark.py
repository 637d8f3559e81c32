"""The mark by which a worker of a pipeline says that it was asked to stop, on a machine that others use, too."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dtj_trainer.config.cluster import Address
from dtj_trainer.errors import UsageError
from dtj_trainer.pipeline_parallel.worker import leaving_mark, prepare_mark

SOURCE = Path(__file__).resolve().parents[3] / "trainer-image"
HERE = Address("127.0.0.1", 10005)


@pytest.fixture(autouse=True)
def shared_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_mark_of_a_job_lies_where_nobody_else_can_write_and_nobody_can_guess(shared_directory: Path) -> None:
    mark = leaving_mark(HERE, job_uid="6f0a")
    prepare_mark(mark)
    mark.touch()
    assert mark.parent == shared_directory / "dtj-6f0a-stage-10005"
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


def test_a_link_in_its_place_is_not_followed(shared_directory: Path) -> None:
    mark = leaving_mark(HERE, job_uid="")
    (shared_directory / "elsewhere").mkdir(0o700)
    mark.parent.symlink_to(shared_directory / "elsewhere")
    with pytest.raises(UsageError, match="cannot be used"):
        prepare_mark(mark)


def test_what_killed_workers_left_is_removed_by_the_next_start_and_what_others_use_is_not(
    shared_directory: Path,
) -> None:
    code = (
        "import os, sys\n"
        "from dtj_trainer.config.cluster import Address\n"
        "from dtj_trainer.pipeline_parallel.worker import leaving_mark, prepare_mark\n"
        "mark = leaving_mark(Address('127.0.0.1', 10006), job_uid=sys.argv[1])\n"
        "prepare_mark(mark)\n"
        "mark.touch()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    for uid in ("", "6f0a"):
        environ = {**os.environ, "TMPDIR": str(shared_directory)}
        assert subprocess.run([sys.executable, "-c", code, uid], cwd=SOURCE, env=environ, check=False).returncode == -9
    assert [path.name for path in shared_directory.iterdir()] == ["dtj-6f0a-stage-10006"]
    used = leaving_mark(Address("127.0.0.1", 10007), job_uid="6f0b")
    prepare_mark(used)
    prepare_mark(leaving_mark(HERE, job_uid="6f0c"))
    assert sorted(path.name for path in shared_directory.iterdir()) == ["dtj-6f0b-stage-10007", "dtj-6f0c-stage-10005"]


def test_somebody_elses_directory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = leaving_mark(HERE, job_uid="6f0a")
    mark.parent.mkdir(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: mark.parent.stat().st_uid + 1)
    with pytest.raises(UsageError, match="cannot be used"):
        prepare_mark(mark)
