"""`python -m dtj_trainer.export TFLite MODEL/1`: adds a format to a SavedModel that is there already.

The trainer runs it for each format next to SavedModel; a person may, where the trainer's image lacks a converter.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

from dtj_trainer.config.export_formats import PLACES, TENSORFLOW_JS, missing_package
from dtj_trainer.export.conversion import discard, draft_of

_USAGE = 2
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Converts, and returns the exit code. Standard output says why it is not 0, unless that is not known; or how the
    converted model is asked otherwise than the SavedModel, if it is.
    """
    if len(arguments) != 2 or arguments[0] not in PLACES:
        print(f"usage: python -m dtj_trainer.export {{{','.join(PLACES)}}} DIRECTORY_OF_A_SAVED_MODEL")
        return _USAGE
    name, saved_model = arguments[0], Path(arguments[1]).absolute()
    if not (saved_model / "saved_model.pb").is_file():
        print(f"{saved_model}: no SavedModel; give the directory that holds saved_model.pb")
        return _USAGE
    if missing := missing_package(name):
        print(f"{name}: the package {missing} is not installed here; see docs/export.md")
        return _USAGE
    draft, place = draft_of(saved_model, name), saved_model / PLACES[name]
    discard(draft)
    try:
        with redirect_stdout(sys.stderr):  # converters are talkative
            note = _converter(name)(saved_model, draft)
        discard(place)
        draft.rename(place)
    except ValueError as error:
        print(" ".join(str(error).split()))
        return 1
    finally:
        discard(draft)
    if note:
        print(note)
    return 0


def _converter(name: str) -> Callable[[Path, Path], str | None]:
    if name == TENSORFLOW_JS:
        from dtj_trainer.export import tfjs

        return tfjs.convert
    from dtj_trainer.export import tflite

    return tflite.convert


def _end_with_parent() -> None:
    """A trainer that is asked to stop leaves at once; nothing of it may stay behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    _end_with_parent()
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow's tear-down takes seconds
