"""A container image of one static program, busybox: what sandboxes pause with, and what small tests run.

Written by hand rather than by a builder: a layer, a configuration and a list of both are all that an image is
(docker image specification 1.2, "combined image JSON + filesystem changeset").
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

NAME = "localhost/tiny:1"
BUSYBOX = Path("/bin/busybox")
TENSORBOARD = """#!/bin/sh
for argument; do
  case "$argument" in --logdir=*) logs="${argument#*=}" ;; --port=*) port="${argument#*=}" ;; esac
done
exec httpd -f -p "$port" -h "$logs"
"""
"""Stands in for the command of that name: it serves the files of the log directory."""

GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(path: Path) -> Path:
    """Write the image as an archive at `path`, and return `path`. Its command sleeps for 68 years."""
    programs = _file("bin/busybox", BUSYBOX.read_bytes()), _file("bin/tensorboard", TENSORBOARD.encode())
    layer = _tar(*programs, _folder("tmp"), *map(_link, _commands()))
    configuration = {
        "architecture": GO_ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    texts = {"config.json": configuration, "manifest.json": manifest}
    files = [_file(name, json.dumps(content).encode()) for name, content in texts.items()]
    path.write_bytes(_tar(_file("layer.tar", layer), *files))
    return path


Entry = tuple[tarfile.TarInfo, bytes]


def _file(name: str, content: bytes) -> Entry:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    return entry, content


def _folder(name: str) -> Entry:
    """A folder that everyone may write to."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
    return entry, b""


def _link(command: str) -> Entry:
    entry = tarfile.TarInfo(f"bin/{command}")
    entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
    return entry, b""


def _commands() -> list[str]:
    listed = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return [command for command in listed if command != "busybox"]


def _tar(*entries: Entry) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for entry, content in entries:
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()
