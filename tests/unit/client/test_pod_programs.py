"""The program that unpacks code in a pod. Each test runs the real one."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from dtj.client.code_manifest import UNPACK_CODE
from dtj.client.code_pack import CodePack

# -- unpacking --------------------------------------------------------------------------------------------------


def unpack(archive: Path, target: Path, digest: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-W", "error", "-c", UNPACK_CODE, str(archive), str(target), digest, "copy it"]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_the_code_is_unpacked(packed: CodePack, tmp_path: Path) -> None:
    archive, target = tmp_path / "archive", tmp_path / "target"
    archive.write_bytes(packed.archive)
    target.mkdir()
    done = unpack(archive, target, packed.digest)
    assert (done.returncode, done.stderr) == (0, "")
    assert (target / "train.py").read_text() == "print('trained')"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "the code sha256:{digest} is not there: copy it"),
        (b"no archive", "the code sha256:{digest} cannot be read (Not a gzipped file (b'no')): copy it"),
        (gzip.compress(b"other", mtime=0), "the code sha256:{digest} is damaged, its digest is sha256:"),
    ],
    ids=["absent", "no archive", "other content"],
)
def test_code_that_is_not_the_one_of_the_digest_is_one_line_and_nothing_is_unpacked(
    packed: CodePack, tmp_path: Path, content: bytes | None, words: str
) -> None:
    archive, target = tmp_path / "archive", tmp_path / "target"
    target.mkdir()
    if content is not None:
        archive.write_bytes(content)
    done = unpack(archive, target, packed.digest)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(words.format(digest=packed.digest))
    assert list(target.iterdir()) == []


def test_half_of_an_archive_is_not_unpacked(packed: CodePack, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(packed.archive[:-20])
    done = unpack(archive, tmp_path, packed.digest)
    assert done.returncode == 1
    assert "cannot be read" in done.stderr
    assert not (tmp_path / "train.py").exists()
