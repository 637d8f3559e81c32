"""The files of checkpoints in a directory: which there are, and how a new one gets its name. Standard library only."""

import errno
import os
from pathlib import Path

from dtj_trainer.local_files import write_atomically

PREFIX = "ckpt"


def find(directory: Path) -> list[int]:
    """The steps that have a complete checkpoint in the directory, newest first.

    TensorFlow writes the index file last, so its presence means that the data was written before it.
    """
    names = (path.stem.removeprefix(f"{PREFIX}-") for path in directory.glob(f"{PREFIX}-*.index"))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def path_of(directory: Path, step: int) -> Path:
    """What TensorFlow calls the checkpoint of this step."""
    return directory / f"{PREFIX}-{step}"


def remove(directory: Path, step: int) -> None:
    """Removes the files of a checkpoint, the index first: what has one is whole.

    Raises:
        OSError: the directory does not let them go.
    """
    name = path_of(directory, step).name
    for path in (directory / f"{name}.index", *directory.glob(f"{name}.data-*")):
        path.unlink(missing_ok=True)


def keep_newest(directory: Path) -> None:
    """Removes all checkpoints but the newest complete one, also what a killed process has left of one.

    Raises:
        OSError: the directory does not let them go.
    """
    steps = find(directory)
    for step in steps[1:]:
        remove(directory, step)
    for left in directory.glob(f"{PREFIX}-*"):
        if not steps or left.name.partition(".")[0] != path_of(directory, steps[0]).name:
            left.unlink(missing_ok=True)


def publish(draft: Path, directory: Path, step: int) -> None:
    """Gives the files of a draft their names, the index last: what has an index is whole."""
    name = path_of(directory, step).name
    (directory / f"{name}.index").unlink(missing_ok=True)
    for path in sorted(draft.glob(f"{name}.*"), key=lambda path: path.suffix == ".index"):
        _flush(path)
        path.replace(directory / path.name)


def _flush(path: Path) -> None:
    """Has the file on the disk before its name says so: the next step removes an older checkpoint."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no such call; theirs is then the write itself.
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def write_list(directory: Path) -> None:
    """Writes the file `checkpoint`, by which TensorFlow's `latest_checkpoint` and TensorBoard find the newest."""
    names = [path_of(directory, step).name for step in reversed(find(directory))]
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    write_atomically(directory / "checkpoint", "\n".join(lines) + "\n")
