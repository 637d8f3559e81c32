"""Runs a converter in a process of its own: one that crashes or never ends must not take the training's result along.

It sees no cluster and no accelerator, which the trainer still holds. Standard library alone.
"""

import ctypes
import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

from dtj_trainer.config.outputs import CONVERSIONS
from dtj_trainer.errors import TrainerError
from dtj_trainer.process.ending import leave

LIMIT_SECONDS = 1800.0
"""How long a conversion may take."""
_USAGE = 2
_PR_SET_PDEATHSIG = 1


class ConversionFailed(TrainerError):
    """A model has no such form, or its converter failed. The SavedModel is there all the same."""


def add(name: str, saved_model: Path, *, limit: float = LIMIT_SECONDS) -> str:
    """Converts a SavedModel to the named format; the result appears next to it, whole.

    Returns:
        How the converted model is asked otherwise than the SavedModel; empty where it is not.

    Raises:
        ConversionFailed: says why, in one line.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "dtj_trainer.export", name, str(saved_model)],
            env=_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise _failed(name, saved_model, f"the converter was not done after {limit:g} s") from None
    finally:
        _discard(draft_of(saved_model, name))
    if ended.returncode:
        sys.stderr.write(ended.stderr)
        raise _failed(name, saved_model, _reason(ended))
    return ended.stdout.strip()


def draft_of(saved_model: Path, name: str) -> Path:
    """Where a converter writes before its work is whole: outside the version, so that this never holds half a file."""
    return saved_model.parent / f".draft-{saved_model.name}-{name}"


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if not name.startswith(("DTJ_", "TF_CONFIG"))}
    return {**kept, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def _failed(name: str, saved_model: Path, why: str) -> ConversionFailed:
    return ConversionFailed(
        f"export as {name}: {why}; the SavedModel is safe in {saved_model}; "
        f"leave {name} out of the formats (--export-formats, export.formats of a job)"
    )


def _reason(ended: subprocess.CompletedProcess[str]) -> str:
    """The converter's own words, which it prints last of all; or how it crashed."""
    if ended.returncode < 0:
        return f"the converter was ended by signal {-ended.returncode}" + (
            " (the kernel kills so when memory runs out)" if ended.returncode == -9 else ""
        )
    output = ended.stdout.strip().splitlines() or ended.stderr.strip().splitlines()
    return output[-1] if output else f"the converter exited with code {ended.returncode}"


def main(arguments: list[str]) -> int:
    """Converts, in this process, and returns the exit code. Standard output says why it is not 0, unless that is not
    known; or how the converted model is asked otherwise than the SavedModel, if it is.
    """
    if len(arguments) != 2 or arguments[0] not in CONVERSIONS:
        print(f"usage: python -m dtj_trainer.export {{{','.join(CONVERSIONS)}}} DIRECTORY_OF_A_SAVED_MODEL")
        return _USAGE
    name, saved_model = arguments[0], Path(arguments[1]).absolute()
    if not (saved_model / "saved_model.pb").is_file():
        print(f"{saved_model}: no SavedModel; give the directory that holds saved_model.pb")
        return _USAGE
    conversion = CONVERSIONS[name]
    if package := conversion.missing:
        print(f"{name}: the package {package} is not installed here; see docs/export.md")
        return _USAGE
    draft, place = draft_of(saved_model, name), saved_model / conversion.place
    _discard(draft)
    try:
        with redirect_stdout(sys.stderr):  # converters are talkative
            note: str | None = importlib.import_module(conversion.converter).convert(saved_model, draft)
        _discard(place)
        draft.rename(place)
    except ValueError as error:
        print(" ".join(str(error).split()))
        return 1
    finally:
        _discard(draft)
    if note:
        print(note)
    return 0


def run() -> None:
    """`python -m dtj_trainer.export`, to the end of the process."""
    if sys.platform == "linux":
        # A trainer that is asked to stop leaves at once; nothing of it may stay behind.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    leave(main(sys.argv[1:]))


def _discard(path: Path) -> None:
    """Removes a file or a directory, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
