"""Attempts on a folder of `files`, one after the other: files change in between, and the store refuses meanwhile.

What an attempt remembers for the next one, in the checkpoint directory and in the local copies of a bucket, must not
show: each is judged by what the plain reader finds at its time. Not composed yet: a change of which neither the size
nor the time of a file tells.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from support.faulty_store import READ, Fault
from trainer.adversaries import files
from trainer.adversaries.files import Folder
from trainer.adversaries.judge import REFUSED, WRONG, Verdict
from trainer.stores import Store

PASSING = (Fault.UNAVAILABLE, Fault.CUT_ANSWER)


def compose(seed: int, place: Path, store: Store | None = None) -> Folder:
    """As `files.compose`, with a directory for checkpoints."""
    made = files.compose(seed, place, store)
    (place / "checkpoints").mkdir()
    made.options = (*made.options, f"--checkpoint-dir={place / 'checkpoints'}")
    return made


def judge(folder: Folder) -> Verdict:
    """The first fault of several attempts, or what came of the last one; in the folder that it is in."""
    r = random.Random(f"attempts {folder.seed}")
    if folder.store and r.random() < 0.5 and (verdict := _refused_by(folder, folder.store, r)).fault:
        return verdict
    verdict = files.judge(folder)
    for _ in range(r.randint(1, 2)):
        if verdict.fault:
            break
        _change(folder, r)
        # Where the plain reader keeps what no file can be named.
        shutil.rmtree(folder.root.parent / "objects", ignore_errors=True)
        if folder.store and r.random() < 0.3:
            fault = r.choice(PASSING)
            folder.store.proxy.fail(READ, "", fault, times=1)
            folder.notes.append(f"once {fault.name} while it is read")
        verdict = files.judge(folder)
        if folder.store:
            folder.store.proxy.recover()
    return verdict


def _refused_by(folder: Folder, store: Store, r: random.Random) -> Verdict:
    """What comes of an attempt during which the store refuses each request, or those for one file."""
    part = r.choice(("", *sorted(path.name for path in _data(folder))))
    store.proxy.fail(READ, part, Fault.FORBIDDEN, times=10_000)
    flaws, folder.flaws, folder.flawed = (folder.flaws, folder.flawed), [f"access denied to {part!r}"], ""
    folder.notes.append(folder.flaws[0])
    verdict = files.judge(folder)
    folder.flaws, folder.flawed = flaws
    store.proxy.recover()
    shutil.rmtree(folder.root.parent / "objects", ignore_errors=True)
    if verdict.fault or verdict.kind == REFUSED:
        return verdict
    return Verdict(WRONG, f"the store refuses, and it is {verdict}")


def _data(folder: Folder) -> list[Path]:
    """The files of the folder that have no flaw, and are not hidden."""
    found = []
    for path in sorted(folder.root.rglob("*")):
        parts = path.relative_to(folder.root).parts
        if not path.is_file() or path.is_symlink() or any(part.startswith((".", "_")) for part in parts):
            continue
        if files.is_data(folder, path.name) and not (folder.flawed and folder.flawed in str(path)):
            found.append(path)
    return found


def _change(folder: Folder, r: random.Random) -> None:
    """Changes one file in the folder, and in its bucket."""
    data = _data(folder)
    if not data:
        return
    path = r.choice(data)
    alike = [one for one in data if one.suffix == path.suffix and one != path] or [path]
    other, way = r.choice(alike), r.choice(("replaced by", "exchanged with", "copied", "removed"))
    folder.notes.append(f"{path.name} {way}{f' {other.name}' if way in ('replaced by', 'exchanged with') else ''}")
    content, theirs = path.read_bytes(), other.read_bytes()
    if way == "removed":
        # Too little may be left.
        folder.flaws.append(folder.notes[-1])
        folder.flawed = ""
        path.unlink()
    elif way == "copied":
        path.with_name(f"another {path.name}").write_bytes(content)
    else:
        path.write_bytes(theirs)
        if way == "exchanged with":
            other.write_bytes(content)
    if folder.store:
        for one in (path, other, path.with_name(f"another {path.name}")):
            key = f"top/data/{one.relative_to(folder.root)}"
            if one.exists():
                folder.store.contents.write(key, one.read_bytes())
            elif key in folder.store.contents.list_keys(key):
                folder.store.contents.delete(key)
