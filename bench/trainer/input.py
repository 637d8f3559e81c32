"""What each optimisation of the trainer's input is worth: the same examples with it and without it, in one process.

    PYTHONPATH=trainer-image:bench .venv-trainer/bin/python bench/trainer/input.py [--rounds 5] [--seconds 2]

A figure is how many times as many examples a second come with the optimisation as without, the two sides one after the
other in each round. Files are written first, to a temporary directory: TFRecords of 32 numbers, which cost next to
nothing to decode, and pictures of 64 x 64, which do. They stay in the page cache, so what reading several files at a
time gains on a disk or a network is not in these figures, only what it costs or gains in itself.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from dtj_trainer.config.parsing import parse
from dtj_trainer.data.full_batches import FullBatches
from dtj_trainer.data.open_files import open_files
from dtj_trainer.data.worker_shards import Share
from figures import parser, print_machine, print_ratio

BATCH = 64
FILES = 16
NUMBERS = 32
SIDE = 64
WARM_UP = 10
AUTOTUNE = tf.data.AUTOTUNE
MATRIX = tf.random.stateless_uniform((500, 500), seed=(1, 2))


@dataclass(frozen=True)
class Comparison:
    """One optimisation. Each side gives batches without end."""

    name: str
    without: Any
    with_it: Any
    step: Callable[[], object] = lambda: None
    """What the training does with each batch."""


def write_records(folder: Path, examples: int) -> Path:
    """TFRecord files, each with its part of the examples."""
    folder.mkdir()
    for file in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"part-{file:03d}.tfrecord")) as writer:
            for number in range(file, examples, FILES):
                features = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=[number] * NUMBERS)),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 10])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return folder


def write_pictures(folder: Path, pictures: int) -> Path:
    """PNG files of noise, in directories of two classes."""
    noise = tf.random.Generator.from_seed(1)
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for number in range(pictures // 2):
            pixels = tf.cast(noise.uniform((SIDE, SIDE, 3), 0, 256, dtype=tf.int32), tf.uint8)
            tf.io.write_file(str(folder / name / f"{number:04d}.png"), tf.io.encode_png(pixels))
    return folder


def opened(folder: Path, cache: str = "none") -> FullBatches:
    """The trainer's own source over these files."""
    config = parse([f"--data-dir={folder}", f"--cache={cache}"], {"DTJ_JOB_NAME": "bench"})
    return open_files(config, numbers=False)


def comparisons(records: Path, pictures: Path) -> list[Comparison]:
    """Each optimisation against doing without it, all else being as the trainer has it."""
    numbers, images = opened(records), opened(pictures)
    paths = tf.data.Dataset.from_tensor_slices(sorted(map(str, records.iterdir()))).repeat()
    raw, files = (source.records(seen=0, seed=0) for source in (numbers, images))
    parse_batch, decode = numbers.decoder(), images.decoder()
    parsed = raw.batch(BATCH).map(parse_batch, num_parallel_calls=AUTOTUNE)

    def read(parallel: int | None) -> Any:
        return paths.interleave(tf.data.TFRecordDataset, cycle_length=FILES, num_parallel_calls=parallel).batch(BATCH)

    def parse_one(record: Any) -> Any:
        inputs, labels = parse_batch(record[tf.newaxis])
        return inputs[0], labels[0]

    half = Share(worker=0, workers=2)
    of_both = images.batches(batch=2 * BATCH, seed=0).map(lambda inputs, labels: (inputs[:BATCH], labels[:BATCH]))
    return [
        Comparison("interleave", read(None), read(AUTOTUNE)),
        Comparison(
            "chunks of a file",
            paths.interleave(tf.data.TFRecordDataset, cycle_length=FILES, num_parallel_calls=AUTOTUNE)
            .enumerate().filter(lambda number, _: number % 10 > 0).batch(BATCH),
            numbers.in_order().repeat().batch(BATCH),
        ),
        Comparison("vectorised map", raw.map(parse_one, num_parallel_calls=AUTOTUNE).batch(BATCH), parsed),
        Comparison("parallel map", files.map(decode).batch(BATCH), images.batched(files, BATCH)),
        Comparison(
            "cache in memory",
            images.batches(batch=BATCH, seed=0),
            opened(pictures, "memory").batches(batch=BATCH, seed=0),
        ),
        Comparison("prefetch", parsed, parsed.prefetch(AUTOTUNE), step=lambda: tf.linalg.matmul(MATRIX, MATRIX)),
        Comparison(
            "own share of two", of_both, images.share_of_batches(batch=2 * BATCH, seed=0, first_step=0, share=half)
        ),
    ]  # fmt: skip


def rate(stream: Any, step: Callable[[], object], seconds: float) -> float:
    """Batches a second."""
    batches = iter(stream)
    for _ in range(WARM_UP):
        next(batches)
    began, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < began + seconds or not count:
        next(batches)
        step()
        count += 1
    return count / (now - began)


def main() -> None:
    options = parser(
        __doc__,
        rounds=(5, "how often each is measured"),
        seconds=(2.0, "for each side of each round"),
        examples=(20_000, "examples in the files of records"),
        pictures=(1_000, "files of pictures"),
    ).parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as directory:
        records = write_records(Path(directory) / "records", options.examples)
        pictures = write_pictures(Path(directory) / "pictures", options.pictures)
        for one in comparisons(records, pictures):
            sides: tuple[list[float], list[float]] = ([], [])
            for _ in range(options.rounds):
                for rates, stream in zip(sides, (one.without, one.with_it), strict=True):
                    rates.append(rate(stream, one.step, options.seconds))
            print_ratio(one.name, sides[1], sides[0], target=None)


if __name__ == "__main__":
    main()
