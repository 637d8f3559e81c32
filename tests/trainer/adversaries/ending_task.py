"""The program of a task that ends, or fails, at one operation: the trainer, which counts what it does to its outputs.

Each operation is a line of TEST_OPERATIONS. TEST_FAULT names one of them, and what happens there: see `ends.Fault`.
TensorFlow writes a checkpoint or a model by itself, so each is one operation; torn, the first half of it is there.
"""

import errno
import io
import json
import os
import re
import runpy
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.checkpoint.state import State
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.distribution import agreement
from dtj_trainer.object_store.backend import Cause, RequestFailed
from dtj_trainer.object_store.s3 import S3

FULL, BROKEN, AWAY = "full", "broken", "away"
"""How an operation fails: no space is left, the disk has an error, the store answers 503."""
KILL, POWER = "kill", "power"
"""How a task ends: by SIGKILL, or with its machine, which loses what was written and not flushed."""
BEFORE, TORN, AFTER = "before", "torn", "after"
_ERRORS = {FULL: errno.ENOSPC, BROKEN: errno.EIO}
_OBJECTS = {"write": "write", "create": "create", "upload": "upload", "delete": "delete", "read": "read",
            "read_part": "read", "list": "list"}  # fmt: skip
_lock = threading.Lock()
_counts: Counter[str] = Counter()
_fault: dict[str, Any] = {}
_flushed: dict[int, int] = {}
"""By the number of a file, when it was last written before it was flushed."""
_began = time.time_ns()


def during(name: str, act: Callable[[], Any], *, tear: Callable[[], object] = lambda: None, local: bool = True) -> Any:
    """Acts, unless this operation is the one that ends or fails.

    Args:
        tear: leaves the first half of what `act` would leave.
    """
    name = re.sub(r"[0-9a-f]{16,}|-?\d+", "N", name)
    with _lock:
        number = _counts[name]
        _counts[name] += 1
        with open(os.environ["TEST_OPERATIONS"], "a") as file:
            file.write(f"{name}\n")
    if not _fault or name != _fault["name"] or number < _fault["number"] or number > _fault["number"] + _fault["more"]:
        return act()
    Path(os.environ["TEST_OPERATIONS"]).with_suffix(".hit").touch()
    try:
        if _fault["moment"] == AFTER:
            act()
        elif _fault["moment"] == TORN:
            tear()
    finally:  # as a directory that is there may be no error
        if _fault["how"] == POWER:
            _lose()
        if _fault["how"] in (KILL, POWER):
            os.kill(os.getpid(), signal.SIGKILL)
    if _fault["how"] == AWAY or not local:
        raise RequestFailed(Cause.NO_ANSWER, "503 Service Unavailable")
    if name.startswith(("tensors", "model")):
        text = os.strerror(_ERRORS[_fault["how"]])
        raise tf.errors.ResourceExhaustedError(None, None, f"{name}; {text}")
    raise OSError(_ERRORS[_fault["how"]], os.strerror(_ERRORS[_fault["how"]]), name)


def _lose() -> None:
    """Empties each file that this task has written and not flushed: its name is there, its content is not."""
    for path in Path(os.environ["TEST_FOLDER"]).rglob("*"):
        if _ours(path) and path.is_file() and not path.is_symlink():
            found = path.stat()
            if found.st_mtime_ns >= _began and _flushed.get(found.st_ino, 0) < found.st_mtime_ns:
                os.truncate(path, 0)


def _ours(path: Any) -> bool:
    if not isinstance(path, str | os.PathLike):
        return False
    text = os.fspath(path)
    if (
        not isinstance(text, str)
        or Path(text).suffix in (".log", ".termination", ".operations", ".hit")
        or "tfevents" in text
    ):
        return False
    return os.path.abspath(text).startswith(os.environ["TEST_FOLDER"])


def _short(path: Any) -> str:
    """Without the names of processes and machines."""
    whole = Path(os.path.abspath(os.fspath(path)))
    parts = whole.relative_to(os.environ["TEST_FOLDER"]).parts
    return "/".join(re.sub(r"^\.(draft|saving)-.*", r".\1", part) for part in parts[-2:])


def _calls(module: Any, name: str, path: Callable[..., Any], label: str) -> None:
    """Makes a function of `os` an operation."""
    real = getattr(module, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        where = path(*args)
        if kwargs.get("dir_fd") is not None or not _ours(where):
            return real(*args, **kwargs)
        return during(f"{label} {_short(where)}", lambda: real(*args, **kwargs))

    setattr(module, name, call)


class _Written:
    """A file that is written, each call of `write` an operation."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name

    def write(self, content: Any) -> Any:
        def tear() -> None:
            self._file.write(content[: len(content) // 2])
            self._file.flush()

        def act() -> Any:
            count = self._file.write(content)
            self._file.flush()
            return count

        return during(self._name, act, tear=tear)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _opens() -> None:
    real = io.open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not set(mode) & set("wax+") or not _ours(file):
            return real(file, mode, *args, **kwargs)
        name = _short(file)
        made = during(f"open {name}", lambda: real(file, mode, *args, **kwargs))
        return _Written(made, f"write {name}")

    io.open = opened


def _tensorflow() -> None:
    ops, save = tf.raw_ops, tf.raw_ops.SaveV2

    def tensors(*, prefix: str, **kwargs: Any) -> Any:
        def tear() -> None:
            save(prefix=prefix, **kwargs)
            data = Path(f"{prefix}.data-00000-of-00001")
            data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
            os.remove(f"{prefix}.index")

        return during("tensors", lambda: save(prefix=prefix, **kwargs), tear=tear)

    ops.SaveV2 = tensors
    model = tf.saved_model.save

    def saved(module: Any, path: str, **kwargs: Any) -> Any:
        def tear() -> None:
            model(module, path, **kwargs)
            graph = Path(path, "saved_model.pb")
            graph.write_bytes(graph.read_bytes()[: graph.stat().st_size // 2])
            shutil.rmtree(Path(path, "variables"))

        return during("model", lambda: model(module, path, **kwargs), tear=tear)

    tf.saved_model.save = saved


def _methods(kind: Any, name: str, label: Callable[..., str], *, local: bool = True) -> None:
    real = getattr(kind, name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return during(label(*args), lambda: real(self, *args, **kwargs), local=local)

    setattr(kind, name, call)


def _objects() -> None:
    def key(*args: Any) -> str:
        """Without the folder of the sample."""
        text = next((each for each in reversed(args) if isinstance(each, str)), "")
        return re.sub(r"(\.dtj-probe)-\w+", r"\1", "/".join(text.split("/")[-2:]))

    for name, label in _OBJECTS.items():

        def named(*args: Any, label: str = label, name: str = name) -> str:
            return f"object {label} {key(args[-1] if name == 'upload' else args[0])}"

        _methods(S3, name, named, local=False)


def _agreements() -> None:
    real = agreement.of_each_replica

    def of_each_replica(strategy: Any, number: int) -> list[int]:
        return during("agreement", lambda: real(strategy, number))

    for module in [module for name, module in sys.modules.items() if name.startswith("dtj_trainer")]:
        if getattr(module, "of_each_replica", None) is real:
            module.of_each_replica = of_each_replica
    for name in ("wait_at_barrier", "set_key_value"):
        _calls_of(compat, name)


def _calls_of(module: Any, name: str) -> None:
    real = getattr(module, name)

    def call(key: str, *args: Any, **kwargs: Any) -> Any:
        return during(f"{name} {key}", lambda: real(key, *args, **kwargs))

    setattr(module, name, call)


def main() -> None:
    """Runs to the end of the process."""
    _fault.update(json.loads(os.environ.get("TEST_FAULT") or "{}"))
    _calls(os, "replace", lambda a, b: b, "replace")
    _calls(os, "rename", lambda a, b: b, "rename")
    _calls(os, "unlink", lambda a: a, "unlink")
    _calls(os, "mkdir", lambda a, *_: a, "mkdir")
    _fsync()
    _opens()
    _tensorflow()
    _objects()
    _agreements()
    _methods(State, "snapshot", lambda *_: "snapshot")
    _methods(State, "restore", lambda *_: "restore")
    runpy.run_module("dtj_trainer", run_name="__main__", alter_sys=True)


def _fsync() -> None:
    real = os.fsync

    def fsync(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        if _ours(path):
            during(f"fsync {_short(path)}", lambda: real(file))
        else:
            real(file)
        found = os.fstat(file)
        _flushed[found.st_ino] = found.st_mtime_ns

    os.fsync = fsync


if __name__ == "__main__":
    main()
