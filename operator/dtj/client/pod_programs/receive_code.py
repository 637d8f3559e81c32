"""Receives an archive of code on a port of the pod and stores it on a volume, whole or not at all.

It sends a line of JSON when a connection is open, {"stored": bool}. If the archive is not stored yet, it takes the
bytes of it, and sends another line, {"problem": "", "errno": 0}. It serves until its pod is deleted: a connection may
only look whether the port can be reached, so an answer that was sent may not have been read.
"""

import gzip
import hashlib
import json
import os
import socket
import sys
import time
import zlib
from collections.abc import Iterable, Iterator

DAY = 86_400


class Cut(Exception):
    """The connection ended before all bytes had come."""


def digest_of(file: str) -> str:
    """The SHA-256 of the tar in a file; empty if there is none."""
    found = hashlib.sha256()
    try:
        with gzip.open(file) as content:
            for chunk in iter(lambda: content.read(2**20), b""):
                found.update(chunk)
    except (OSError, EOFError, zlib.error):
        return ""
    return found.hexdigest()


def make_directory(directory: str, root: str) -> None:
    """Directories have the mode of the volume, so that other users of it can write there, too."""
    if directory == root or os.path.isdir(directory):
        return
    make_directory(os.path.dirname(directory), root)
    try:
        os.mkdir(directory)
    except FileExistsError:  # another pod was faster
        return
    os.chmod(directory, os.stat(root).st_mode & 0o7777)


def remove_leftovers(directory: str) -> None:
    """Remove parts of archives whose pods were killed."""
    for name in os.listdir(directory):
        file = os.path.join(directory, name)
        try:
            if name.endswith(".part") and os.stat(file).st_mtime < time.time() - DAY:
                os.remove(file)
        except OSError:  # another pod was faster, or another user owns it
            pass


def received(connection: socket.socket, size: int) -> Iterator[bytes]:
    while size:
        try:
            chunk = connection.recv(min(size, 2**16))
        except OSError as error:
            raise Cut from error
        if not chunk:
            raise Cut
        size -= len(chunk)
        yield chunk


def store(chunks: Iterable[bytes], root: str, archive: str, digest: str) -> tuple[str, int]:
    """Store the archive. Returns what is wrong, and the error number of the operating system, if it has one."""
    part = f"{archive}.{os.uname().nodename}.part"
    try:
        make_directory(os.path.dirname(archive), root)
        remove_leftovers(os.path.dirname(archive))
        with open(part, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if digest_of(part) != digest:
            return "the bytes that arrived have another digest", 0
        os.replace(part, archive)
    except OSError as error:
        return error.strerror or str(error), error.errno or 0
    finally:
        if os.path.lexists(part):
            os.remove(part)
    return "", 0


def serve(connection: socket.socket, root: str, archive: str, digest: str, size: int) -> None:
    """Answer one connection. Raises Cut and OSError."""

    def send(**message: object) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")

    stored = digest_of(archive) == digest
    send(stored=stored)
    if stored:
        return
    chunks = received(connection, size)
    problem, number = store(chunks, root, archive, digest)
    for _ in chunks:  # what is not read would reset the connection, and with it the answer
        pass
    send(problem=problem, errno=number)


def main(root: str, path: str, digest: str, size: str, port: str) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(port)))
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection:
                try:
                    serve(connection, root, os.path.join(root, path), digest, int(size))
                except (Cut, OSError):
                    continue


main(*sys.argv[1:])
