"""The operator and the command line as processes, forked from one that has imported what they import: see `forks.py`.

A start of Python with these imports takes more than a second of a processor, and a run has hundreds.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from forks import Forked, ForkServer

SOURCES: Final = Path(__file__).parents[2] / "operator"
OPERATOR: Final = "dtj.app.main"
COMMAND_LINE: Final = "dtj.cli.main"

_IMPORTS: Final = {OPERATOR: ("dtj.app.*",), COMMAND_LINE: ("dtj.cli.*",)}
_READ_EARLY: Final = ("PYTHON", "LD_", "LC_", "LANG")
"""Variables that Python reads when it starts."""

_servers: dict[str, ForkServer] = {}
_choosing: Final = threading.Lock()


def start(
    program: str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    streams: tuple[int, int, int],
    folder: Path | None = None,
) -> subprocess.Popen[bytes] | Forked:
    """What ``python -m`` of a program of this tree starts, in this folder and with this environment.

    ``streams`` are descriptors: they become its standard input, output and error.
    """
    folder = folder or Path.cwd()
    environ = {**environ, "PYTHONPATH": str(SOURCES)}
    with _choosing:
        server = _servers.get(program)
        if server is None:
            server = _servers[program] = ForkServer(program, _IMPORTS[program], environ)
            atexit.register(server.stop)
    if sys.platform.startswith("linux") and _early(environ) == _early(server.environ):
        return server.fork(arguments, environ, folder=folder, streams=streams)
    stdin, stdout, stderr = streams
    command = [sys.executable, "-m", program, *arguments]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=environ, cwd=folder)


def _early(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(_READ_EARLY)}
