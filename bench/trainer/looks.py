"""What it costs to look at the first batch of a `fit`, which shows how losses, metrics and layers divide.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/looks.py [--rounds 3]

Under Mirrored on two logical CPUs, and on two workers of MultiWorkerMirrored, for a ResNet and for a small language
model with a masked loss of the user's own, which is gathered. Each training has processes of its own. `look` is the
time of the look, `compile` that of the rest of the first step but for what a later step takes, and the ratio is of
these two in one run. `memory` is the largest resident memory of a process with the look, of that without it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import figures
from dtj_trainer.keras_fit import first_batch
from loopback import free_ports

WORKERS: Mapping[str, int] = {"Mirrored": 1, "MultiWorkerMirrored": 2}
STEPS = 6
_ROOT = Path(__file__).resolve().parents[2]
PATH = os.pathsep.join(str(_ROOT / name) for name in ("trainer-image", "bench", "tests"))
"""What the processes of a training import from; they run in a folder of their own."""
layers = keras.layers


def resnet() -> tuple[Any, Any, Any, int]:
    """Of 18 layers, for images of 32 by 32."""
    x = h = keras.Input((32, 32, 3))
    h = layers.Conv2D(32, 3, padding="same")(h)
    for stage, width in enumerate((32, 64, 128, 256)):
        for block in range(2):
            strides = 2 if stage and not block else 1
            short = layers.Conv2D(width, 1, strides)(h) if strides > 1 or h.shape[-1] != width else h
            h = layers.Activation("relu")(layers.BatchNormalization()(h))
            h = layers.Conv2D(width, 3, strides, padding="same", activation="relu")(h)
            h = layers.Conv2D(width, 3, padding="same")(layers.BatchNormalization()(h)) + short
    model = keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    random = np.random.default_rng(0)
    return model, random.normal(size=(32, 32, 32, 3)).astype("float32"), random.integers(0, 10, 32), 32


def masked_mean(labels: Any, logits: Any) -> Any:
    counts = tf.cast(labels > 0, logits.dtype)
    each = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return tf.reduce_sum(each * counts) / tf.reduce_sum(counts)


def language() -> tuple[Any, Any, Any, int]:
    """Four layers of attention over 64 tokens of 1,000."""
    x = keras.Input((64,), dtype="int32")
    h = layers.Embedding(1000, 128)(x)
    for _ in range(4):
        n = layers.LayerNormalization()(h)
        h = h + layers.MultiHeadAttention(4, 32)(n, n, use_causal_mask=True)
        h = h + layers.Dense(128)(layers.Dense(512, "gelu")(layers.LayerNormalization()(h)))
    model = keras.Model(x, layers.Dense(1000)(h))
    model.compile("adam", masked_mean)
    tokens = np.random.default_rng(0).integers(0, 1000, (16, 65))
    return model, tokens[:, :-1].astype("int32"), tokens[:, 1:], 16


MODELS = {"resnet": resnet, "language": language}


def train(model: str, *, looks: bool, out: str) -> None:
    """The `fit` of a script; each worker writes its figures."""
    import dtj_trainer

    spent = 0.0
    look = first_batch.look

    def timed(*args: Any, **kwargs: Any) -> Any:
        nonlocal spent
        if not looks:
            return first_batch.Found()
        began = perf_counter()
        found = look(*args, **kwargs)
        spent += perf_counter() - began
        return found

    first_batch.look = timed
    ends: list[float] = []
    with dtj_trainer.session() as session:
        with session.strategy.scope():
            made, inputs, labels, batch = MODELS[model]()
        data = tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat().batch(batch)
        note = keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: ends.append(perf_counter()),
            on_train_batch_end=lambda batch, logs: ends.append(perf_counter()),
        )
        made.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[note, session.callback()])
    first, *_, last = np.diff(ends)
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    place = json.loads(os.environ.get("TF_CONFIG") or '{"task": {"index": 0}}')["task"]["index"]
    found = {"look": spent, "compile": first - spent - last, "peak": peak / 2**10}
    Path(f"{out}{place}").write_text(json.dumps(found))


def run(strategy: str, model: str, *, looks: bool) -> Mapping[str, float]:
    """The figures of the worker with the largest ones."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(WORKERS[strategy])]
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/figures"
        arguments = ["--script", __file__, "--strategy", strategy, "--logical-cpus=2", "--start-timeout=120"]
        processes = []
        for index in range(len(addresses)):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            environ = os.environ | {"PYTHONPATH": PATH}
            if len(addresses) > 1:
                environ["TF_CONFIG"] = json.dumps(task)
            command = [sys.executable, "-m", "dtj_trainer", *arguments, f"--checkpoint-dir={folder}/saved", "--"]
            command += ["--part", model, "--out", out, *(["--looks"] if looks else [])]
            processes.append(subprocess.Popen(command, env=environ, cwd=folder, stdout=subprocess.DEVNULL))
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit(f"{strategy}, {model}: a worker failed")
        found = [json.loads(Path(f"{out}{index}").read_text()) for index in range(len(addresses))]
        return {name: max(one[name] for one in found) for name in found[0]}


def main() -> None:
    parser = figures.parser(__doc__, rounds=(3, "pairs of trainings of each kind"))
    parser.add_argument("--part", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--looks", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part:
        train(chosen.part, looks=chosen.looks, out=chosen.out)
        return
    figures.print_machine()
    for strategy in WORKERS:
        for model in MODELS:
            pairs = [[run(strategy, model, looks=looks) for looks in (True, False)] for _ in range(chosen.rounds)]
            ratio = statistics.median(one["look"] / one["compile"] for one, _ in pairs)
            memory = statistics.median(one["peak"] / other["peak"] for one, other in pairs)
            look, rest = (statistics.median(one[name] for one, _ in pairs) for name in ("look", "compile"))
            of = f"look {look:.1f} s, compile {rest:.1f} s: {ratio:.2f}; memory {memory:.2f}"
            figures.print_figure(f"{strategy}, {model}", f"{of}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
