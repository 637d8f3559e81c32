"""Folders of data as users have them, composed at random, and what a plain reader finds in them.

The plain readers are csv, PIL, gzip and the protocol buffers. A sample is *equal* if each of their examples comes once
an epoch, to learn from or held out and never both; else it is *refused* in one line, or a fault. Only a sample with a
flaw may be refused. A share of the folders is served from a bucket, beside neighbours and objects that no folder has.
Not composed yet: features of several lengths, a bucket that changes while it is read. See also `attempts`.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from dtj_trainer.config.store_url import StorePolicy
from dtj_trainer.data.worker_shards import Share
from dtj_trainer.errors import TrainerError, UsageError
from dtj_trainer.object_store import data_cache
from trainer.adversaries.judge import CRASH, EQUAL, REFUSED, WRONG, Verdict
from trainer.data_files import opened
from trainer.stores import Store

ENDINGS = {"csv": ".csv", "images": ".png", "text": ".tsv", "lines": ".txt", "tfrecord": ".tfrecord"}
"""By form; lines are text in directories that are its classes."""
PICTURES = (".png", ".png", ".jpg", ".jpeg", ".JPG", ".gif", ".webp")
SIZES = ((5, 4), (5, 4), (4, 5), (16, 9), (1, 1))
CLASSES = ("cat", "dog", "Großer Hund")
NAMES = ("part {}", "{}'s", "naïve-{}", "100%-{}", "a#{}", "{}.v2", "x,{}", "{}")
JUNK = (".DS_Store", "._part{}", "_SUCCESS", "README.md", ".ipynb_checkpoints/old{}", "__MACOSX/._x{}", "_old/cat/7{}")
Key = tuple[Any, ...]  # what an example is known by: its input, and its label


@dataclass
class Folder:
    """A folder that was composed, how it is named, and what is odd about it."""

    seed: int
    form: str
    root: Path
    where: str = ""
    held_out: str = ""
    workers: int = 1
    numbers: bool = False  # whether the label is a number, of the column y
    options: tuple[str, ...] = ()
    store: Store | None = None
    objects: dict[str, bytes] = field(default_factory=dict)  # with names that no file has, by their keys below the root
    flaws: list[str] = field(default_factory=list)  # for which it may be refused
    flawed: str = ""  # the file, which the line of a refusal names
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        options = " ".join((f"--data-dir={self.where}", f"--held-out={self.held_out}", *self.options))
        said = f"{self.form} {options}, {self.workers} workers"
        return f"seed {self.seed}: {said}; {', '.join(self.flaws) or 'no flaw'}; {', '.join(self.notes)}"


def compose(seed: int, place: Path, store: Store | None = None) -> Folder:
    """Writes the folder of this seed below `place`, and to an empty bucket if there is one."""
    r = random.Random(seed)
    made = Folder(seed, r.choice(sorted(ENDINGS)), place / "data", store=store)
    numbers = iter(range(10_000))
    held_out = r.random() < 0.4
    if made.form == "csv" and r.random() < 0.4:
        made.numbers, made.options = True, ("--label-column=y", "--columns=x")
    elif made.form == "images" and r.random() < 0.4:
        made.options = (f"--image-size={r.choice(('3x5', '1x1', '20x7'))}",)
    for part in ("train", "judge") if held_out else ("",):
        for file in range(r.randint(2, 4)):
            _write(made, r, made.root / part / r.choice(("", "", f"deep {file}")), file, numbers)
    if r.random() < 0.5:
        _flaw(made, r)
    _junk(made, r)
    if store is None:
        _links(made, r)
    else:
        _objects(made, r, store)
    made.where = _spelled(made, r, "data")
    made.held_out = _spelled(made, r, "data/judge") if held_out else r.choice(("0.1", "0.2", "0.5"))
    made.workers = r.choice((1, 1, 2, 3))
    return made


def _write(made: Folder, r: random.Random, folder: Path, file: int, numbers: Iterator[int]) -> None:
    rows = [next(numbers) for _ in range(r.randint(4, 12))]
    name = r.choice(NAMES).format(file)
    if made.form == "images":
        for number in rows:
            place = folder / CLASSES[number % 3]
            place.mkdir(parents=True, exist_ok=True)
            picture, ending = Image.new("RGB", r.choice(SIZES), (number, number, number)), r.choice(PICTURES)
            modes = ("RGB", "L", "RGBA", "P") if ending == ".png" else ("RGB", "L")
            mode = r.choice(modes)
            # What is resized has one colour only if its palette has it.
            made_of = picture.quantize() if mode == "P" else picture.convert(mode)
            made_of.save(place / f"{name}-{number}{ending}", quality=100, lossless=True)
        return
    if made.form == "lines":
        for place in range(3):
            (folder / CLASSES[place]).mkdir(parents=True, exist_ok=True)
            texts = (*TEXTS, *["plain"] * 10)  # so few have tabs that none of them stands behind a label
            text = "".join(f"{r.choice(texts)} {number}\n" for number in rows if number % 3 == place)
            (folder / CLASSES[place] / f"{name}-{rows[0]}.txt").write_text(text)
        return
    folder.mkdir(parents=True, exist_ok=True)
    zipped = r.random() < 0.2
    path = folder / f"{name}-{rows[0]}{ENDINGS[made.form]}{'.gz' if zipped else ''}"
    if made.form == "tfrecord":
        with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression_type="GZIP" if zipped else "")) as out:
            for number in rows:
                out.write(_record(number))
        return
    quote = r.choice(("", "", '"'))
    lines = [_line(made.form, number, quote, r) for number in rows]
    end = r.choice(("\n", "\n", "\r\n"))
    for _ in range(r.choice((0, 0, 2))):
        lines.insert(r.randint(1, len(lines)), "")
    head = ["x,y,label"] if made.form == "csv" else []
    text = end.join([*head, *lines]) + r.choice((end, ""))
    content = text.encode("utf-8-sig" if r.random() < 0.2 else "utf-8")
    path.write_bytes(gzip.compress(content) if zipped else content)


def _line(form: str, number: int, quote: str, r: random.Random) -> str:
    label = CLASSES[number % 3]
    if form == "text":
        return f"{label}\t{r.choice(TEXTS)} {number}"
    shown = str(number) if quote else r.choice(("{}", "{}.0", "+{}", "{}e0", " {}")).format(number)
    return f"{shown},{number % 7 / 4},{quote}{label}{quote}"


def _record(number: int, **other: tf.train.Feature) -> bytes:
    features = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[number, number % 7 / 4])),
        "label": tf.train.Feature(bytes_list=tf.train.BytesList(value=[CLASSES[number % 3].encode()])),
        **other,
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


TEXTS = ("a day", "día", "a\ttab", "  spaced", '"quoted"')
CELLS = (  # noqa: SIM905
    "| |nan|inf|-inf|1e39|0x1A|0x1p3|1_000|True|1,5|1 0|٣|--1|1e|\"1|NaN|1d5|Infinity|1.5.5|''|\0|1e-60|"
    "9007199254740993|1e38|-0|1f|0b1|\ufeff1|5\u00a0"
).split("|")
LABELS = (  # noqa: SIM905
    '|  |"|""|"  "|cat | cat|"a,b"|"a""b"|cat\u200b|\ufeffcat|nan|1_000|True|0x1A|c"t|cat,dog|\u00a0|\t|"cat" |Cat'
).split("|")


def _flaw(made: Folder, r: random.Random) -> None:
    path = r.choice(sorted(path for path in made.root.rglob("*") if path.is_file()))
    content = _content(path)
    if made.form in ("images", "lines") or r.random() < 0.3:
        change = r.choice(CHANGES[made.form])
        content = change(content)
        made.flaws.append(f"{path.name}: {change.__name__}")
    elif made.form == "tfrecord":
        blank = [tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])) for value in (b" ", b"")]
        odd = [tf.train.Feature(float_list=tf.train.FloatList(value=value)) for value in ([math.nan, 1], [1], [])]
        other = {"label": r.choice(blank)} if r.random() < 0.5 else {"x": r.choice(odd)}
        scratch = made.root.parent / "scratch"
        with tf.io.TFRecordWriter(str(scratch)) as out:
            out.write(_record(9000, **other))
        content = r.choice((content + scratch.read_bytes(), content[:-3], content + b"tail"))
        made.flaws.append(f"{path.name}: {' '.join(str(other).split())}, cut, or a tail")
    else:
        lines = content.decode().splitlines(keepends=True)
        place = r.randint(1, len(lines) - 1)
        end = lines[place][len(lines[place].rstrip("\r\n")) :]
        if made.form == "text":
            line = f"{r.choice(LABELS)}\tflawed 9000"
        else:
            cell, label = (r.choice(CELLS), "cat") if r.random() < 0.6 else ("9000", r.choice(LABELS))
            line = f"{cell},1,{label}" if not made.numbers or r.random() < 0.5 else f"9000,{cell},cat"
        lines[place] = line + end
        content = "".join(lines).encode()
        made.flaws.append(f"{path.name}: {line!a}")
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)
    made.flawed = path.name


def _as_of_windows(content: bytes) -> bytes:
    return content.decode("utf-8-sig").encode("cp1252", "replace")


def _in_utf_16(content: bytes) -> bytes:
    return content.decode("utf-8-sig").encode("utf-16")


def _with_semicolons(content: bytes) -> bytes:
    return content.replace(b",", b";")


def _with_its_header_last(content: bytes) -> bytes:
    head, *rows = content.splitlines(keepends=True)
    return b"".join([*rows, b"" if rows[-1].endswith(b"\n") else b"\n", head])


def _twice(content: bytes) -> bytes:
    """As two files that were put together; of a picture, the second half says nothing."""
    return content + (b"" if content.endswith(b"\n") else b"\n") + content


def _in_other_columns(content: bytes) -> bytes:
    return b"".join(
        b",".join([*line.rstrip(b"\r\n").split(b",", 1)[::-1]]) + b"\n"
        for line in content.removeprefix(b"\xef\xbb\xbf").splitlines()
        if line.strip()
    )


def _as_webp(content: bytes) -> bytes:
    return _picture_as(content, "WEBP", lossless=True)


def _as_gif(content: bytes) -> bytes:
    return _picture_as(content, "GIF")


def _picture_as(content: bytes, kind: str, **options: bool) -> bytes:
    out = io.BytesIO()
    Image.open(io.BytesIO(content)).convert("RGB").save(out, kind, **options)
    return out.getvalue()


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _nothing(content: bytes) -> bytes:
    return b""


def _a_page(content: bytes) -> bytes:
    """As a download that failed."""
    return b"<!DOCTYPE html><html><body>404</body></html>\n"


def _by_zlib(content: bytes) -> bytes:
    return zlib.compress(content)


CHANGES: dict[str, tuple[Callable[[bytes], bytes], ...]] = {
    "csv": (
        _as_of_windows, _in_utf_16, _with_semicolons, _with_its_header_last, _twice, _in_other_columns, _nothing,
        _a_page,
    ),
    "text": (_as_of_windows, _in_utf_16, _nothing, _a_page, _half),
    "lines": (_as_of_windows, _in_utf_16, _nothing, _half),
    "images": (_as_webp, _as_gif, _half, _nothing, _a_page, _twice),
    "tfrecord": (_by_zlib, _nothing, _a_page, _half),
}  # fmt: skip


def _content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()


def _junk(made: Folder, r: random.Random) -> None:
    files = sorted(path for path in made.root.rglob("*") if path.is_file())
    for name in r.sample(JUNK, r.randint(0, 3)):
        path = made.root / name.format(ENDINGS[made.form])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(r.choice((b"", b"junk\n", files[0].read_bytes())))
        made.notes.append(name)


def _links(made: Folder, r: random.Random) -> None:
    files = sorted(path for path in made.root.rglob("*") if path.is_file())
    if made.form in ("images", "lines"):  # where what is hidden is beside the classes
        files = [path for path in files if not any(part.startswith((".", "_")) for part in path.parts)]
    if r.random() < 0.3:
        target = r.choice(files)
        # By another name, junk would be data.
        if not target.name.startswith((".", "_")):
            target.with_name(f"copy of {target.name}").symlink_to(target.name)
            made.notes.append(f"a link to {target.name}")
    if r.random() < 0.3:
        folder = r.choice(sorted({path.parent for path in files}))
        (folder / "self").symlink_to("." if "judge" in folder.parts else r.choice((".", "..", str(made.root))))
        made.notes.append(f"a cycle in {folder.name}")
    if made.form != "images" and r.random() < 0.3:
        # As a ConfigMap has them.
        target = r.choice(files)
        hidden = target.parent / "..data"
        hidden.mkdir()
        target.rename(hidden / target.name)
        target.symlink_to(f"..data/{target.name}")
        made.notes.append(f"{target.name} in ..data")
    (made.root.parent / "link").symlink_to("data")


def _objects(made: Folder, r: random.Random, store: Store) -> None:
    """Copies the folder to the bucket, beside objects that are none of its files."""
    files = {str(path.relative_to(made.root)): path.read_bytes() for path in made.root.rglob("*") if path.is_file()}
    name = r.choice(sorted(files))
    if r.random() < 0.4:
        # As it was before: what has changed since is read again, and what is gone is not read.
        for key in (name, f"gone-{Path(name).name}"):
            store.contents.write(f"top/data/{key}", r.choice(sorted(files.values())))
        with suppress(UsageError):
            data_cache.fetch(store.url("top/data"), option="--data-dir", store=_policy(made))
        store.clear()
        made.notes.append(f"another {name}, and one that is gone")
    if r.random() < 0.5:
        for folder in {str(path) for key in files for path in Path(key).parents} | {"empty"}:
            store.contents.write(f"top/data/{folder}/" if folder != "." else "top/data/", b"")
        made.notes.append("objects for folders")
    for neighbour in r.sample(("top/data2/{}", "top/data{}", "top/dat/{}", "top/{}", "data/{}"), r.randint(0, 3)):
        store.contents.write(neighbour.format(name), files[name])
        made.notes.append(neighbour)
    if r.random() < 0.25:
        parent, _, last = name.rpartition("/")
        odd = r.choice(("/{}", "./{}", "odd//{}", "odd/{}/{}", "ctl\x01{}", "{}" + "n" * 250, "../{}"))
        odd = "./{}" if odd == "../{}" and store.scheme == "gs" else odd  # whose emulator fails
        key = "/".join(filter(None, (parent, odd.format(last, last))))
        made.objects[key] = files[name]
        made.flaws.append(f"the object {key!a}")
        if odd == "odd/{}/{}":
            files[f"{parent}/odd/{last}".lstrip("/")] = files[name]
            made.objects[f"{parent}/odd/{last}".lstrip("/")] = files[name]
    for key, content in (files | made.objects).items():
        store.contents.write(f"top/data/{key}", content)


def _policy(made: Folder) -> StorePolicy:
    return StorePolicy(cache=made.root.parent / "cache", retry_seconds=5)


def _spelled(made: Folder, r: random.Random, name: str) -> str:
    below = name.removeprefix("data")
    if made.store:
        return made.store.url(r.choice(("top/data{}", "top/data{}/", "/top//data{}"))).format(below)
    ways = ("data{}", "./data{}", "data{}/", "data/{}", str(made.root) + "{}", "link{}", "link/../data{}")
    return r.choice(ways).format(below)


def found(folder: Folder) -> tuple[Counter[Key], Counter[Key]]:
    """What a plain reader finds to learn from, and what it finds to be judged by, where these are files of their own.

    Raises:
        ValueError: there is what it cannot read.
    """
    learned: dict[Path, Path] = {}
    judged: dict[Path, Path] = {}
    for below, names, files in os.walk(folder.root):
        names[:] = [name for name in names if not name.startswith((".", "_"))]
        for path in (Path(below, name) for name in files):
            if not path.name.startswith((".", "_")) and is_data(folder, path.name):
                into = judged if path.relative_to(folder.root).parts[0] == "judge" else learned
                into[path.resolve()] = path
    read: Callable[[Path], Iterator[Key]] = {
        "csv": partial(_read_csv, numbers=folder.numbers), "images": _read_image, "text": _read_text,
        "lines": _read_lines, "tfrecord": _read_records,
    }[folder.form]  # fmt: skip
    for number, (key, content) in enumerate(folder.objects.items()):
        parts = [part for part in key.split("/") if part not in (".", "..")]
        if not any(part.startswith(("_", ".")) for part in parts) and is_data(folder, key):
            *_, parent, name = ("", *key.split("/"))
            path = folder.root.parent / "objects" / str(number) / parent.replace("..", "_") / name[:100]
            path.parent.mkdir(parents=True)
            path.write_bytes(content)
            (judged if key.startswith("judge/") else learned)[path] = path
    first, second = (Counter(key for path in of.values() for key in read(path)) for of in (learned, judged))
    return first, second


def is_data(folder: Folder, name: str) -> bool:
    return any(one in name for one in (PICTURES if folder.form == "images" else (ENDINGS[folder.form],)))


def _read_csv(path: Path, *, numbers: bool) -> Iterator[Key]:
    lines = csv.reader(io.StringIO(_content(path).decode("utf-8-sig"), newline=""), strict=True)
    head, *rows = [row for row in lines if row] or [["x", "y", "label"]]
    if sorted(head) != ["label", "x", "y"]:
        raise ValueError(head)
    for row in rows:
        x, y, label = (row[head.index(name)] for name in ("x", "y", "label"))
        if len(row) != len(head):
            raise ValueError(row)
        if not (numbers or label.strip()) or any("_" in one or not one.isascii() for one in (x, y)):
            raise ValueError(row)
        values = np.float32(x), np.float32(y)
        if not np.isfinite(values).all():
            raise ValueError(row)
        yield (*map(float, values), *(() if numbers else (label.strip(),)))


def _read_lines(path: Path) -> Iterator[Key]:
    for line in _content(path).decode("utf-8-sig").split("\n"):
        if line.strip():
            yield line, path.parent.name


def _read_text(path: Path) -> Iterator[Key]:
    for line in _content(path).decode("utf-8-sig").replace("\r\n", "\n").split("\n"):
        # As of files that were put together.
        row = line.removeprefix("\ufeff")
        if row.strip(" \t"):
            label, text = row.split("\t", 1)
            if not label.strip():
                raise ValueError(row)
            yield text, label.strip(" \t")


def _read_image(path: Path) -> Iterator[Key]:
    pixels = np.asarray(Image.open(path).convert("RGB"))
    yield (*map(int, pixels[0, 0]), path.parent.name)


def _read_records(path: Path) -> Iterator[Key]:
    kind = "GZIP" if path.name.endswith(".gz") else ""
    try:
        records = [*tf.data.TFRecordDataset(str(path), compression_type=kind).as_numpy_iterator()]
    except tf.errors.OpError as error:
        raise ValueError(str(error)) from None
    for record in records:
        features = tf.train.Example.FromString(record).features.feature
        x, (label,) = features["x"].float_list.value, features["label"].bytes_list.value
        if len(x) != 2 or not np.isfinite(x).all() or not label.strip():
            raise ValueError(record)
        yield (*x, label.decode())


def judge(folder: Folder) -> Verdict:
    """What the trainer makes of it, against the plain reader; in the folder that it is in."""
    try:
        plain = found(folder)
    except (ValueError, IndexError, OSError, csv.Error):
        plain = None
    try:
        cache = [f"--store-cache={_policy(folder).cache}"] if folder.store else []
        form = "text" if folder.form == "lines" else folder.form
        arguments = (f"--held-out={folder.held_out}", f"--data-format={form}", *folder.options, *cache)
        source = opened(folder.where, *arguments, numbers=folder.numbers)
        share = [Share(worker=worker, workers=folder.workers) for worker in range(folder.workers)]
        streams = [source.share_of_batches(batch=folder.workers, seed=1, first_step=0, share=one) for one in share]
        ours: Counter[Key] = Counter()
        for stream in streams:
            ours.update(_keys(source, stream.take(source.examples)))
        theirs = Counter(_keys(source, source.validation(batch=5)))
    except TrainerError as error:
        return _refused(folder, error)
    except tf.errors.OpError as error:
        # As the trainer asks for the cause of what it meets while it reads.
        problem = source.diagnose()
        return _refused(folder, problem) if problem else Verdict(CRASH, f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 whatever else it is, it is a fault
        return Verdict(CRASH, f"{type(error).__name__}: {error}")
    if plain is None:
        return Verdict(WRONG, "taken, and the plain reader cannot read it")
    learned, judged = plain
    once = Counter({key: count // folder.workers for key, count in ours.items()})
    if any(count % folder.workers for count in ours.values()):
        return Verdict(WRONG, "not each example came as often as the others")
    if judged and theirs != judged:
        return Verdict(WRONG, f"held out: {_difference(theirs, judged)}")
    if once + theirs != learned + judged:
        return Verdict(WRONG, f"all: {_difference(once + theirs, learned + judged)}")
    return Verdict(EQUAL, f"{once.total()} and {theirs.total()}")


def _refused(folder: Folder, error: TrainerError) -> Verdict:
    if "\n" in str(error):
        return Verdict(WRONG, f"refused in several lines: {error}")
    of_folder = any(one.startswith("the object") for one in folder.flaws) or "too few records" in str(error)
    if not folder.flaws or not (folder.flawed in str(error) or of_folder):
        return Verdict(WRONG, f"refused: {error}")
    return Verdict(REFUSED, str(error))


def _difference(ours: Counter[Key], plain: Counter[Key]) -> str:
    return f"too many {[*(ours - plain).items()][:3]}, too few {[*(plain - ours).items()][:3]}"


def _keys(source: Any, stream: Any) -> Iterator[Key]:
    for inputs, labels in stream.as_numpy_iterator():
        for one, label in zip(inputs, labels, strict=True):
            name = source.classes[label] if source.classes else float(label)
            if isinstance(one, bytes):
                yield one.decode(), name
            else:
                values = one if one.ndim == 1 else np.round(one[0, 0] * 255).astype(int)
                yield (*values.tolist(), name)
