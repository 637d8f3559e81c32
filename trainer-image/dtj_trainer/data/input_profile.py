"""Where the input's time goes: the pipeline run alone, once for each of its stages, each run one stage longer.

What a stage takes is what a batch takes longer with it than without. Stages overlap when they run together, so the sum
is more than what the whole takes; the whole is measured as well, as the training would run it. Imports TensorFlow.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from dtj_trainer.config.cluster import CHIEF, WORKER
from dtj_trainer.config.data import Profile
from dtj_trainer.config.parsing import Config
from dtj_trainer.data.pipeline import Pipeline
from dtj_trainer.data.sharding import Share
from dtj_trainer.data.source import Source, Stream
from dtj_trainer.metrics.formatting import short_number

_WARM_BATCHES = 2


@dataclass(frozen=True)
class TimedStage:
    """A part of the pipeline, and what it takes for a batch."""

    name: str
    seconds: float


def report(source: Source, config: Config, profile: Profile) -> None:
    """Measures for about as long as asked, and prints a table, rates, and one line of advice."""
    batch = config.batch_size.over(max(1, config.cluster.count(CHIEF) + config.cluster.count(WORKER)))
    whole = source.batches(batch=batch, seed=config.seed)
    example = next(iter(whole))
    pipeline = source if isinstance(source, Pipeline) else None
    runs = _runs(pipeline, config, batch) if pipeline else []
    each = profile.seconds / (len(runs) + 3)
    stages, before = [], 0.0
    for name, stream in runs:
        seconds = _seconds_a_batch(stream, each)
        stages.append(TimedStage(name, max(0.0, seconds - before)))
        before = max(before, seconds)
    if pipeline and not pipeline.decodes_batches:
        # Single examples cannot be counted without making batches of them: so that is measured by itself.
        one = tf.data.Dataset.from_tensors(tuple(part[0] for part in example)).repeat()
        batching = min(stages[-1].seconds, _seconds_a_batch(one.batch(batch), each))
        stages[-1] = TimedStage(stages[-1].name, stages[-1].seconds - batching)
        stages.append(TimedStage("batch", batching))
    total = _seconds_a_batch(whole, each)
    stages.append(TimedStage("transfer", _transfer_seconds(example, each)))
    _print(stages, total, source=source, batch=batch, size=sum(map(_bytes, example)))
    print(_advice(total, max(stages, key=lambda stage: stage.seconds).name, profile.step_seconds))


def _runs(source: Pipeline, config: Config, batch: int) -> list[tuple[str, Stream]]:
    """The pipeline's stages, each with all before it and on one thread; one batch an element."""
    decode = source.decoder()
    shuffled = source.records(seen=0, seed=config.seed, share=Share())
    decoded = shuffled.batch(batch).map(decode) if source.decodes_batches else shuffled.map(decode).batch(batch)
    return [
        ("read", source.in_order().repeat().batch(batch)),
        ("shuffle", shuffled.batch(batch)),
        ("decode", decoded),
    ]


def _print(stages: Sequence[TimedStage], total: float, *, source: Source, batch: int, size: int) -> None:
    spent = sum(stage.seconds for stage in stages) or 1.0
    print(f"input of {source.name}: batches of {batch}, nothing trained")
    print(f"{'stage':<10} {'ms a batch':>10} {'share':>6}")
    for stage in stages:
        print(f"{stage.name:<10} {1000 * stage.seconds:>10.3f} {stage.seconds / spent:>6.0%}")
    print(f"{'together':<10} {1000 * total:>10.3f}         as the training runs it: stages overlap")
    print(f"{short_number(batch / total)} examples/s, {short_number(size / total / 2**20)} MiB/s")


def _transfer_seconds(example: Any, seconds: float) -> float:
    """What it takes to bring a batch to the device that computes; on a CPU it is there already."""
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus or any(part.dtype == tf.string for part in example):
        return 0.0
    began, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < began + seconds or not count:
        with tf.device(gpus[0].name):
            copies = [tf.identity(part) for part in example]
        copies[-1].numpy()
        count += 1
    return (now - began) / count


def _seconds_a_batch(stream: Stream, seconds: float) -> float:
    iterator = iter(stream)
    for _ in range(_WARM_BATCHES):
        next(iterator)
    began = time.perf_counter()
    count = 0
    while (now := time.perf_counter()) < began + seconds or not count:
        next(iterator)
        count += 1
    return (now - began) / count


def _bytes(part: Any) -> int:
    if part.dtype == tf.string:
        return int(tf.reduce_sum(tf.strings.length(part)))
    return int(part.numpy().nbytes)


def _advice(total: float, slowest: str, step: float | None) -> str:
    if step is None:
        return (
            f"advice: a step that takes longer than {1000 * total:.2f} ms is not held up by the input; see --step-time"
        )
    if total <= step:
        return f"advice: not input-bound: a batch takes {1000 * total:.2f} ms, a step {1000 * step:.2f} ms"
    return (
        f"advice: input-bound: a batch takes {1000 * total:.2f} ms, a step {1000 * step:.2f} ms; most of it is "
        f"{slowest}: {_REMEDIES[slowest]}"
    )


_REMEDIES = {
    "read": "more and smaller files, a faster volume, or --cache=memory",
    "shuffle": "a smaller --shuffle-window, or --cache=memory",
    "decode": "--cache=memory, more CPUs, or a tf.data service (--data-service)",
    "batch": "a smaller --image-size, or more CPUs",
    "transfer": "more CPUs, or smaller inputs",
}
