"""What each optimisation of the trainer's input is worth: the same records with and without it, in one process.

    .venv-trainer/bin/python bench/input.py [--rounds 5] [--examples 20000] [--files 16]

Files are written to a temporary directory first: TFRecord for the readers, PNG for the decoder. A figure is examples a
second, and a ratio is that of the two sides of one round, taken one after the other; the median of the rounds counts.
The files are in the page cache, so what reading in parallel gains on a disk or a network is not in these figures; to
see it, --latency lets each file take so long to open.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "trainer-image"))

import tensorflow as tf

FEATURES = 32
BATCH = 64
WARM_UP = 3
AUTOTUNE = tf.data.AUTOTUNE
Side = Callable[[], Any]
"""Makes an endless dataset of batches."""


@dataclass(frozen=True)
class Comparison:
    """One optimisation: the input without it and with it."""

    name: str
    without: Side
    with_it: Side


def write_records(folder: Path, *, examples: int, files: int) -> list[str]:
    """TFRecord files, each with its part of the examples."""
    paths = [str(folder / f"part-{number:03d}.tfrecord") for number in range(files)]
    for number, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for example in range(number, examples, files):
                features = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=[example] * FEATURES)),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[example % 10])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return paths


def write_pictures(folder: Path, *, pictures: int) -> list[str]:
    """PNG files of 64 x 64 pixels of noise."""
    noise = tf.random.Generator.from_seed(1)
    paths = [str(folder / f"{number:04d}.png") for number in range(pictures)]
    for path in paths:
        pixels = tf.cast(noise.uniform((64, 64, 3), 0, 256, dtype=tf.int32), tf.uint8)
        tf.io.write_file(path, tf.io.encode_png(pixels))
    return paths


def comparisons(records: list[str], pictures: list[str], *, latency: float) -> list[Comparison]:
    """What the trainer does, each against the plain way; all else is equal on both sides."""
    spec = {"x": tf.io.FixedLenFeature((FEATURES,), tf.float32), "label": tf.io.FixedLenFeature((), tf.int64)}
    files = tf.data.Dataset.from_tensor_slices(records).repeat()

    def opened(path: Any) -> Any:
        if not latency:
            return tf.data.TFRecordDataset(path)
        wait = tf.numpy_function(lambda: time.sleep(latency), [], [])
        with tf.control_dependencies([wait]):
            return tf.data.TFRecordDataset(tf.identity(path))

    def read(parallel: int | None) -> Any:
        return files.interleave(opened, cycle_length=16, num_parallel_calls=parallel, deterministic=True)

    def parse(record: Any) -> Any:
        return tf.io.parse_example(record, spec)

    def decode(path: Any) -> Any:
        return tf.cast(tf.io.decode_png(tf.io.read_file(path), channels=3), tf.float32) / 255.0

    images = tf.data.Dataset.from_tensor_slices(pictures)
    examples = read(AUTOTUNE).batch(BATCH).map(parse, num_parallel_calls=AUTOTUNE)
    return [
        Comparison("parallel interleave", lambda: read(None).batch(BATCH), lambda: read(AUTOTUNE).batch(BATCH)),
        Comparison(
            "vectorised map",
            lambda: read(AUTOTUNE).map(parse, num_parallel_calls=AUTOTUNE).batch(BATCH),
            lambda: examples,
        ),
        Comparison(
            "parallel map",
            lambda: images.repeat().map(decode).batch(BATCH),
            lambda: images.repeat().map(decode, num_parallel_calls=AUTOTUNE).batch(BATCH),
        ),
        Comparison(
            "cache in memory",
            lambda: images.map(decode, num_parallel_calls=AUTOTUNE).repeat().batch(BATCH),
            lambda: images.map(decode, num_parallel_calls=AUTOTUNE).cache().repeat().batch(BATCH),
        ),
        Comparison("prefetch", lambda: examples, lambda: examples.prefetch(AUTOTUNE)),
    ]


def rate(side: Side, *, seconds: float, step: Callable[[], object]) -> float:
    """Examples a second while each batch is followed by a step of training."""
    batches = iter(side())
    for _ in range(WARM_UP * max(1, WARM_UP)):
        next(batches)
    began, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < began + seconds or not count:
        next(batches)
        step()
        count += 1
    return BATCH * count / (now - began)


def training_step() -> object:
    """Work of about a millisecond, for prefetching to run beside."""
    return tf.linalg.matmul(MATRIX, MATRIX)


MATRIX = tf.random.stateless_uniform((400, 400), seed=(1, 2))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each side of each round")
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--pictures", type=int, default=500)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="to open a file")
    options = parser.parse_args()
    print(f"machine: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; batches of {BATCH}")
    with tempfile.TemporaryDirectory() as directory:
        records = write_records(Path(directory), examples=options.examples, files=options.files)
        pictures = write_pictures(Path(directory), pictures=options.pictures)
        for compared in comparisons(records, pictures, latency=options.latency):
            step = training_step if compared.name == "prefetch" else lambda: None
            rounds = [
                [rate(side, seconds=options.seconds, step=step) for side in (compared.without, compared.with_it)]
                for _ in range(options.rounds)
            ]
            ratios = [fast / plain for plain, fast in rounds]
            plain, fast = (statistics.median(values) for values in zip(*rounds, strict=True))
            each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(
                f"{compared.name:<20} {statistics.median(ratios):.2f} x  (rounds: {each})  "
                f"{plain:,.0f} -> {fast:,.0f} examples/s"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
