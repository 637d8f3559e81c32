"""Small files of each format, as a user would have them. The input of an example shows its number."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from dtj_trainer.config.parsing import Config, parse
from dtj_trainer.data.full_batches import FullBatches
from dtj_trainer.data.open_files import open_files

FORMATS = ("tfrecord", "csv", "images", "text")
CLASSES = ("even", "odd")


def write(folder: Path, form: str, *, examples: int = 60, files: int = 4) -> Path:
    """Writes examples 0, 1, … of one format; an example's class is whether its number is even."""
    folder.mkdir(parents=True)
    numbers = [range(examples)[file::files] for file in range(files)]
    {"tfrecord": _tfrecords, "csv": _tables, "images": _images, "text": _lines}[form](folder, numbers)
    return folder


def example(number: int, **features: Any) -> bytes:
    """A serialized tf.train.Example with x = [number, 1] and label = its class."""
    kept = {
        "x": tf.train.Feature(float_list=tf.train.FloatList(value=[number, 1])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature={**kept, **features})).SerializeToString())


def picture(number: int, *, height: int = 4, width: int = 6) -> bytes:
    """A PNG of one colour."""
    pixels = tf.fill((height, width, 3), tf.constant(number, tf.uint8))
    return bytes(tf.io.encode_png(pixels).numpy())


def _tfrecords(folder: Path, files: Sequence[Sequence[int]]) -> None:
    for file, numbers in enumerate(files):
        with tf.io.TFRecordWriter(str(folder / f"part-{file}.tfrecord")) as writer:
            for number in numbers:
                writer.write(example(number))


def _tables(folder: Path, files: Sequence[Sequence[int]]) -> None:
    for file, numbers in enumerate(files):
        rows = (f"{number},{number % 3},{CLASSES[number % 2]}\n" for number in numbers)
        (folder / f"part-{file}.csv").write_text("x,third,label\n" + "".join(rows))


def _images(folder: Path, files: Sequence[Sequence[int]]) -> None:
    for name in CLASSES:
        (folder / name).mkdir()
    for number in (number for numbers in files for number in numbers):
        (folder / CLASSES[number % 2] / f"{number:03d}.png").write_bytes(picture(number))


def _lines(folder: Path, files: Sequence[Sequence[int]]) -> None:
    for file, numbers in enumerate(files):
        for parity, name in enumerate(CLASSES):
            (folder / name).mkdir(exist_ok=True)
            lines = (f"this is {number}\n" for number in numbers if number % 2 == parity)
            (folder / name / f"part-{file}.txt").write_text("\n".join(lines))


def configured(where: Path, *arguments: str) -> Config:
    """The configuration of a run on these files, which keeps nothing."""
    return parse([f"--data-dir={where}", "--held-out=0.2", *arguments], {"DTJ_JOB_NAME": "job"})


def opened(where: Path, *arguments: str, numbers: bool = False) -> FullBatches:
    """The source over these files; not cached unless asked for."""
    cache = [] if any(argument.startswith("--cache") for argument in arguments) else ["--cache=none"]
    return open_files(configured(where, *cache, *arguments), numbers=numbers)


def numbers_of(inputs: Any) -> list[int]:
    """The numbers of a batch of examples of any format."""
    values = inputs.numpy()
    if values.dtype == object:
        return [int(text.split()[-1]) for text in values]
    if values.ndim == 4:
        return [round(float(one[0, 0, 0]) * 255) for one in values]
    return [int(row[0]) for row in values]


def taken(stream: Any, count: int) -> list[list[tuple[int, int]]]:
    """(number, label) of this many batches."""
    return [
        list(zip(numbers_of(inputs), labels.numpy().tolist(), strict=True)) for inputs, labels in stream.take(count)
    ]
