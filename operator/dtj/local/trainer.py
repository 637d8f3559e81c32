"""The trainer's own environment on this machine: the Python that has TensorFlow, and where ``dtj_trainer`` is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
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

_PROBE: Final = """
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
        python = Path(named).expanduser()
        if (python / "pyvenv.cfg").is_file():
            python = python / "bin" / "python"
        if not os.access(python, os.X_OK) or python.is_dir():
            raise NoTrainer(f"{where}: no Python at {named}; name the python of the trainer's environment")
        trainer = _probe(python)
        if trainer is None:
            raise NoTrainer(f"{where}: {named} lacks TensorFlow or dtj_trainer; {how_to_install()}")
        return trainer
    for python in _candidates():
        trainer = _probe(python)
        if trainer is not None:
            return trainer
    raise NoTrainer(
        f"no Python with TensorFlow and dtj_trainer found: {how_to_install()}, or name one with --trainer-python "
        f"or {VARIABLE}"
    )


def how_to_install() -> str:
    """What to type for a trainer next to this package, TensorBoard included."""
    return "type `make trainer` in the checkout" if _checkout() else "type `pip install 'dtj-cli[local]'`"


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


def _probe(python: Path) -> Trainer | None:
    """``python`` as a trainer, or None where it cannot train. Nothing is imported: TensorFlow takes seconds."""
    # Absolute, since it goes to the front of a PATH; not resolved, since a venv's python is a link.
    python = Path(os.path.abspath(python))
    try:
        asked = subprocess.run(
            # Without PYTHONPATH, which the trainer does not get, but with packages of the user: `pip install --user`.
            [python, "-E", "-P", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = asked.stdout.split()
    if "tensorflow" not in found:
        return None
    if "dtj_trainer" in found:
        return Trainer(python, versions=_versions(found))
    checkout = _checkout()
    if checkout is None:
        return None
    return Trainer(python, checkout / "trainer-image", (*_versions(found), ("dtj-trainer", "of the checkout")))


def _versions(printed: Iterable[str]) -> tuple[tuple[str, str], ...]:
    pairs = (word.partition("=") for word in printed if "=" in word)
    return tuple((name, version) for name, _, version in pairs)
