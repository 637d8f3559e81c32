"""The files of checkpoints in a directory: which there are, and how a new one gets its name. Standard library only.

A directory may hold files of others, such as `ckpt-best/model.keras` or `ckpt-final.keras`. Ours are those that have
exactly a name that is written here, and no others are removed.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from dtj_trainer.errors import Unreadable
from dtj_trainer.local_files import flush, write_atomically

PREFIX = "ckpt"
INDEX = ".index"
_PIECE = 1 << 24
_FILE = re.compile(rf"{PREFIX}-(0|[1-9][0-9]*)(\.index|\.data-[0-9]{{5,}}-of-[0-9]{{5,}})")


def step_of(name: str) -> int | None:
    """The step of the checkpoint that a file of this name is a part of; None if it is part of none."""
    found = _FILE.fullmatch(name)
    return int(found[1]) if found else None


def find(directory: Path) -> list[int]:
    """The steps that have a complete checkpoint in the directory, newest first.

    TensorFlow writes the index file last, so its presence means that the data was written before it.

    Raises:
        Unreadable: the directory is there and cannot be listed.
    """
    return sorted((step for step, path in _files(directory) if path.suffix == INDEX), reverse=True)


def begun(directory: Path) -> set[int]:
    """The steps that have a file in the directory, also those of which a killed process has left a part.

    Raises:
        Unreadable: the directory is there and cannot be listed.
    """
    return {step for step, _ in _files(directory)}


def files_of(directory: Path, step: int) -> list[Path]:
    """The files of the checkpoint of this step, the index first.

    Raises:
        Unreadable: the directory is there and cannot be listed.
    """
    return sorted((path for of, path in _files(directory) if of == step), key=lambda path: path.suffix != INDEX)


def _files(directory: Path) -> Iterator[tuple[int, Path]]:
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unreadable(f"checkpoint directory {directory}", error) from None
    for name in names:
        if (step := step_of(name)) is not None:
            yield step, directory / name


def path_of(directory: Path, step: int) -> Path:
    """What TensorFlow calls the checkpoint of this step."""
    return directory / f"{PREFIX}-{step}"


def remove(directory: Path, step: int) -> None:
    """Removes the files of a checkpoint, the index first: what has one is whole.

    Raises:
        OSError: the directory does not let them go.
        Unreadable: it cannot be listed.
    """
    for path in files_of(directory, step):
        path.unlink(missing_ok=True)


def require_readable(directory: Path, step: int) -> None:
    """That each byte can be read of the files of this checkpoint that are there.

    Raises:
        Unreadable: it cannot, so that nobody can say whether they are damaged.
    """
    for path in files_of(directory, step):
        try:
            with path.open("rb", buffering=0) as file:
                while file.read(_PIECE):
                    pass
        except FileNotFoundError:
            continue  # removed since
        except OSError as error:
            raise Unreadable(f"checkpoint file {path}", error) from None


def keep_newest(directory: Path) -> None:
    """Removes all checkpoints but the newest complete one, also what a killed process has left of one.

    Raises:
        OSError: the directory does not let them go.
        Unreadable: it cannot be listed.
    """
    newest = max(find(directory), default=None)
    for step in begun(directory) - {newest}:
        remove(directory, step)


def publish(draft: Path, directory: Path, step: int) -> None:
    """Gives the files of a draft their names, the index last: what has an index is whole."""
    name = path_of(directory, step).name
    (directory / f"{name}.index").unlink(missing_ok=True)
    for path in sorted(draft.glob(f"{name}.*"), key=lambda path: path.suffix == ".index"):
        # The next step removes an older checkpoint.
        flush(path)
        path.replace(directory / path.name)


def write_list(directory: Path) -> None:
    """Writes the file `checkpoint`, by which TensorFlow's `latest_checkpoint` and TensorBoard find the newest."""
    names = [path_of(directory, step).name for step in reversed(find(directory))]
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    write_atomically(directory / "checkpoint", "\n".join(lines) + "\n")
