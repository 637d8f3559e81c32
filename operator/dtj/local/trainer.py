"""The trainer's own environment on this machine: the Python that has TensorFlow, and where ``dtj_trainer`` is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import dtj

VARIABLE: Final = "DTJ_TRAINER_PYTHON"

LAUNCHER_OPTIONS: Final = (
    "--own-gate",
    "--preload=dtj_trainer.preload",
    "--check=dtj_trainer.__main__:check",
    "--module=dtj_trainer",
    "--",
)
"""How the image starts its launcher: here, too, a lost process is started again in its place."""

_OLDEST_PYTHON: Final = (3, 11)

_PROBE: Final = """
import sys
sys.path[:] = filter(None, sys.path)  # as with -P, which a Python before 3.11 does not have
import importlib.util, platform
from importlib.metadata import PackageNotFoundError, version
print(*(name for name in ("tensorflow", "dtj_trainer") if importlib.util.find_spec(name)))
print("python=" + platform.python_version())
for name in ("tensorflow", "tensorflow-cpu", "keras", "tf_keras", "numpy", "dtj-trainer"):
    try:
        print(name + "=" + version(name))
    except PackageNotFoundError:
        pass
"""
"""Prints the packages that can be imported, and versions as ``name=version``."""
_PROBE_SECONDS: Final = 60.0


class NoTrainer(Exception):
    """There is no Python that can train; the message says what to type."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """A Python that can import TensorFlow and ``dtj_trainer``, the latter with ``source`` on its path.

    ``versions`` are names of what is installed there, each with its version.
    """

    python: Path
    source: Path | None = None
    versions: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def command(self) -> tuple[str, ...]:
        """What the trainer image runs where the manifest gives no command."""
        return (str(self.python), "-m", "dtj_launch", *LAUNCHER_OPTIONS)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` with this Python first on the PATH, and no other Python's settings."""
        foreign = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        environment = {name: value for name, value in base.items() if name not in foreign}
        environment["PATH"] = os.pathsep.join((str(self.python.parent), base.get("PATH", os.defpath)))
        environment["PYTHONUNBUFFERED"] = "1"  # logs are followed while they grow
        if self.source is not None:
            environment["PYTHONPATH"] = str(self.source)
        return environment


def find_trainer(explicit: str | None, environ: Mapping[str, str]) -> Trainer:
    """The Python given, else that of ``DTJ_TRAINER_PYTHON``, else the checkout's, else the one that runs this.

    Both take an interpreter or the folder of a virtual environment. Raises NoTrainer.
    """
    named = explicit or environ.get(VARIABLE)
    if named:
        where = "--trainer-python" if explicit else VARIABLE
        python = Path(os.path.expanduser(named))  # Path.expanduser raises an error for ~ with the name of nobody
        if (python / "pyvenv.cfg").is_file():
            python = python / "bin" / "python"
        if not os.access(python, os.X_OK) or python.is_dir():
            raise NoTrainer(f"{where}: no Python at {named}; name the python of the trainer's environment")
        return _given(python, where, named)
    for python in _candidates():
        with suppress(_Unfit):
            return _probe(python)
    raise NoTrainer(
        f"no Python with TensorFlow and dtj_trainer found: {how_to_install()}, or name one with --trainer-python "
        f"or {VARIABLE}"
    )


def _given(python: Path, where: str, named: str) -> Trainer:
    """A Python that a person named, as a trainer. Raises NoTrainer."""
    try:
        return _probe(python)
    except _Lacks as error:
        raise NoTrainer(f"{where}: {named} {error}; {_how_to_install_into(python)}, or name another Python") from error
    except _Unfit as error:
        raise NoTrainer(f"{where}: {named} {error}; name another Python") from error


def how_to_install() -> str:
    """What to type for a trainer next to this package, TensorBoard included."""
    if _checkout():
        return "type `make trainer` in the checkout"
    return (
        "type `pip install 'dtj-cli[local]'`, or in a checkout `pip install '.[local]' ./trainer-image "
        "./trainer-image/dtj_launch`"
    )


def _how_to_install_into(python: Path) -> str:
    """What to type for a trainer in the environment of a Python."""
    return (
        f"type `{shlex.quote(str(python))} -m pip install 'dtj-trainer[cpu,tensorboard]'` (in a checkout "
        "'./trainer-image[cpu,tensorboard]' ./trainer-image/dtj_launch)"
    )


def _checkout() -> Path | None:
    """The folder that this package runs from the source of, or None where it is installed."""
    root = Path(dtj.__file__).resolve().parents[2]
    return root if (root / "trainer-image" / "dtj_trainer").is_dir() else None


def _candidates() -> Iterator[Path]:
    checkout = _checkout()
    if checkout is not None:
        python = checkout / ".venv-trainer" / "bin" / "python"
        if python.exists():
            yield python
    yield Path(sys.executable)


class _Unfit(Exception):
    """A Python that cannot train; the message says why, after its name."""


class _Lacks(_Unfit):
    """It lacks a package."""


def _probe(python: Path) -> Trainer:
    """``python`` as a trainer. Nothing is imported: TensorFlow takes seconds. Raises _Unfit."""
    # Absolute, since it goes to the front of a PATH; not resolved, since a venv's python is a link.
    python = Path(os.path.abspath(python))
    try:
        asked = subprocess.run(
            # Without PYTHONPATH, which the trainer does not get, but with packages of the user: `pip install --user`.
            [python, "-E", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except OSError as error:
        raise _Unfit(f"cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _Unfit(f"did not answer within {_PROBE_SECONDS:g} s") from error
    found = asked.stdout.split()
    version = dict(_versions(found)).get("python")
    if version is None:
        raise _Unfit(f"is no Python that works: {asked.stderr.strip().rpartition(chr(10))[2] or 'it printed nothing'}")
    if tuple(map(int, version.split(".")[:2])) < _OLDEST_PYTHON:
        raise _Unfit(f"is Python {version}, and the trainer needs {'.'.join(map(str, _OLDEST_PYTHON))} or newer")
    if "tensorflow" not in found:
        raise _Lacks("has no TensorFlow")
    if "dtj_trainer" in found:
        return Trainer(python, versions=_versions(found))
    checkout = _checkout()
    if checkout is None:
        raise _Lacks("has no dtj_trainer")
    return Trainer(python, checkout / "trainer-image", (*_versions(found), ("dtj-trainer", "of the checkout")))


def _versions(printed: Iterable[str]) -> tuple[tuple[str, str], ...]:
    pairs = (word.partition("=") for word in printed if "=" in word)
    return tuple((name, version) for name, _, version in pairs)
