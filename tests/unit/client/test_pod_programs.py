"""The program that unpacks code in a pod. Each test runs the real one."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dtj.client.code_manifest import UNPACK_CODE
from dtj.client.code_pack import CodePack


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
        (lambda archive: None, "the code sha256:{digest} is not there: copy it"),
        (
            lambda archive: b"no archive",
            "the code sha256:{digest} cannot be read (Not a gzipped file (b'no')): copy it",
        ),
        (lambda archive: archive[:-20], "the code sha256:{digest} cannot be read ("),
        (
            lambda archive: gzip.compress(b"other", mtime=0),
            "the code sha256:{digest} is damaged, its digest is sha256:",
        ),
    ],
    ids=["absent", "no archive", "half of it", "other content"],
)
def test_code_that_is_not_the_one_of_the_digest_is_one_line_and_nothing_is_unpacked(
    packed: CodePack, tmp_path: Path, content: Callable[[bytes], bytes | None], words: str
) -> None:
    archive, target = tmp_path / "archive", tmp_path / "target"
    target.mkdir()
    if (given := content(packed.archive)) is not None:
        archive.write_bytes(given)
    done = unpack(archive, target, packed.digest)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(words.format(digest=packed.digest))
    assert list(target.iterdir()) == []
