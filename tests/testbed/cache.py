"""Where the testbed keeps what is worth keeping between runs, the locks that guard it, and what it says meanwhile.

Two places: the cache holds toolchain and binaries and outlives everything; a run's own files (certificates, data,
logs) lie under the temporary directory, see `runs`.
"""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def report(line: str) -> None:
    """Tell a person how it goes: one line on stderr."""
    print(f"testbed: {line}", file=sys.stderr, flush=True)


def cache_root() -> Path:
    """The folder of toolchain and binaries: `dtj-testbed` in the user's cache directory (XDG base directories)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dtj-testbed"


@contextmanager
def locked(path: Path, *, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock on the file `path` across processes.

    The kernel releases it when the holder ends, however it ends. `on_wait` is called once if another holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
