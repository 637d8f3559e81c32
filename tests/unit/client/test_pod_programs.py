"""The programs that containers run: unpacking code, and receiving it on a volume. Each test runs the real program."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dtj.client.code_pack import CodePack
from dtj.client.pod_programs import RECEIVE_CODE, UNPACK_CODE
from loopback import free_ports
from support.waiting import eventually

pytestmark = pytest.mark.unit


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


# -- receiving --------------------------------------------------------------------------------------------------

Receiver = Callable[..., tuple[subprocess.Popen[str], int]]


@pytest.fixture
def receiver(tmp_path: Path, packed: CodePack) -> Iterator[Receiver]:
    """Start the program that receives an archive for the volume ``tmp_path/volume``; the process and its port."""
    started = []
    (tmp_path / "volume").mkdir(mode=0o775)

    def start(limit: int | None = None) -> tuple[subprocess.Popen[str], int]:
        (port,) = free_ports(1)
        size = str(len(packed.archive))
        words = [str(tmp_path / "volume"), f"dir/dtj-code/{packed.digest}.tar.gz", packed.digest, size, str(port)]

        def bound() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        program = [sys.executable, "-c", RECEIVE_CODE, *words]
        started.append(subprocess.Popen(program, stderr=subprocess.PIPE, text=True, preexec_fn=bound))
        return started[-1], port

    yield start
    for process in started:
        process.kill()
        process.communicate()


def connected(port: int) -> socket.socket:
    def connection() -> socket.socket:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError as error:
            raise AssertionError(error) from error

    return eventually(connection)


def sent(port: int, content: bytes) -> list[object]:
    """The answers to a connection that sends this."""
    with connected(port) as connection, connection.makefile("r") as lines:
        answers = [json.loads(lines.readline())]
        if not answers[0]["stored"]:
            connection.sendall(content)
            answers.append(json.loads(lines.readline()))
    return answers


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "volume").rglob("*") if path.is_file()]


def test_an_archive_is_stored(receiver: Receiver, packed: CodePack, tmp_path: Path) -> None:
    _, port = receiver()
    assert sent(port, packed.archive) == [{"stored": False}, {"problem": "", "errno": 0}]
    (file,) = files(tmp_path)
    assert file == tmp_path / "volume" / "dir" / "dtj-code" / f"{packed.digest}.tar.gz"
    assert file.read_bytes() == packed.archive
    assert file.parent.stat().st_mode & 0o777 == (tmp_path / "volume").stat().st_mode & 0o777


def test_an_archive_that_is_there_is_not_sent_again(receiver: Receiver, packed: CodePack) -> None:
    sent(receiver()[1], packed.archive)
    _, port = receiver()
    for _ in range(2):  # a first connection may only look whether the port can be reached
        assert sent(port, b"") == [{"stored": True}]


def test_an_archive_that_is_damaged_is_replaced(receiver: Receiver, packed: CodePack, tmp_path: Path) -> None:
    sent(receiver()[1], packed.archive)
    (file,) = files(tmp_path)
    file.write_bytes(packed.archive[:-5])
    assert sent(receiver()[1], packed.archive)[0] == {"stored": False}
    assert file.read_bytes() == packed.archive


def test_a_connection_that_ends_in_the_middle_leaves_nothing_and_the_next_one_is_taken(
    receiver: Receiver, packed: CodePack, tmp_path: Path
) -> None:
    _, port = receiver()
    with connected(port) as connection:
        connection.sendall(packed.archive[:50])
    assert sent(port, packed.archive)[1] == {"problem": "", "errno": 0}
    assert [file.name for file in files(tmp_path)] == [f"{packed.digest}.tar.gz"]


def test_bytes_that_were_changed_on_the_way_are_not_stored(
    receiver: Receiver, packed: CodePack, tmp_path: Path
) -> None:
    _, port = receiver()
    answers = sent(port, bytes(len(packed.archive)))
    assert answers[1] == {"problem": "the bytes that arrived have another digest", "errno": 0}
    assert files(tmp_path) == []


def test_a_volume_that_cannot_take_it_is_reported_and_nothing_stays(
    receiver: Receiver, packed: CodePack, tmp_path: Path
) -> None:
    _, port = receiver(limit=100)
    assert sent(port, packed.archive)[1] == {"problem": "File too large", "errno": 27}
    assert files(tmp_path) == []
