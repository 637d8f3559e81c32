"""A user's own model and data, which the trainer drives."""

import json
import re
import shutil
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from trainer.cluster import NO_EXPORT, PATH, SOURCE, Job, ran
from trainer.outcome import tensors

EXAMPLES = SOURCE.parent / "examples"
SPIRALS = ("--model=own_model.spirals:model", "--data=own_model.spirals:points")
HERE = {"PYTHONPATH": f"{PATH}:{EXAMPLES}:{Path(__file__).parent}"}
TWO_CPUS = "--logical-cpus=2"
MINE = ("--model=mine:model", "--data=mine:data")
"""The arguments that name a user's module mine.py in the working directory of the job."""


def copy_checkpoint(source: Job, target: Job, *, step: int) -> None:
    """Leaves a job what one that was killed after this step leaves. This costs no third start of TensorFlow."""
    target.checkpoints.mkdir(parents=True)
    for file in source.checkpoints.glob(f"ckpt-{step}.*"):
        shutil.copy(file, target.checkpoints)


def test_the_example_learns(tmp_path: Path) -> None:
    job = ran(tmp_path / "alone", arguments=[*SPIRALS, "--epochs=12", "--batch-size=48"], environ=HERE)
    assert job.result["accuracy"] >= 0.9
    assert "adam as the model was compiled  learning rate 0.01" in job["worker-0"].log
    assert "12 epochs of 800 examples" in job["worker-0"].log


POINTS = """
    import numpy as np
    import tensorflow as tf
    import KERAS as keras

    def model():
        return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])

    def data():
        inputs = np.random.RandomState(1).standard_normal((640, 4)).astype("float32")
        whole = tf.data.Dataset.from_tensor_slices((inputs, inputs.sum(axis=1)))
        return {"training": whole.skip(128), "held_out": whole.take(128)}
"""


@pytest.mark.parametrize(("library", "strategy"), [("keras", "OneDevice"), ("tf_keras", "ParameterServer")])
def test_two_datasets_and_a_loss_of_the_command_line(folder: Path, library: str, strategy: str) -> None:
    arguments = [*MINE, "--loss=mean_squared_error", "--learning-rate=0.02", "--epochs=25"]
    job = ran(folder, strategy=strategy, arguments=arguments, files={"mine.py": POINTS.replace("KERAS", library)})
    assert "adam  learning rate 0.02" in job[job.leader].log
    assert "25 epochs of 512 examples" in job[job.leader].log
    # The variance of the sum of four standard normal numbers is 4.
    assert job.result["loss"] < 0.5
    assert job.result.keys() >= {"mean_absolute_error"}


def test_batch_normalization_in_layers_of_layers_is_reported_as_made_over_all_replicas(folder: Path) -> None:
    arguments = ["--model=parity_models:normalised_nested", "--data=parity_models:points", "--logical-cpus=2"]
    job = ran(folder, strategy="Mirrored", arguments=arguments, environ=HERE, exports=False)
    assert "statistics of 2 BatchNormalization are made over all 2 replicas\n" in job["worker-0"].log


def test_what_replicas_gather_for_a_loss_is_reported(folder: Path) -> None:
    arguments = ["--model=parity_models:dice_of_the_batch", "--data=parity_models:one_hot_points", "--batch-size=48"]
    job = ran(folder, strategy="Mirrored", arguments=[*arguments, TWO_CPUS], environ=HERE, exports=False)
    # 48 examples of 3 labels and 3 outputs, of 4 bytes each.
    assert "loss dice gathered: 1.15 kB a step\n" in job["worker-0"].log


WIDE = """
    import tensorflow as tf
    import keras

    def root(labels, outputs):
        return tf.sqrt(tf.reduce_mean(tf.square(labels - outputs)))

    def model():
        made = keras.Sequential([keras.Input((1, 1)), keras.layers.UpSampling1D(200_000), keras.layers.Dense(1)])
        made.compile("sgd", root)
        return made

    def data():
        whole = tf.data.Dataset.range(100).map(lambda n: (tf.ones((1, 1)), tf.zeros((200_000, 1))))
        return {"training": whole, "held_out": whole.take(20)}
"""


def test_more_than_replicas_can_gather_in_a_step_is_one_line(folder: Path) -> None:
    arguments = [*MINE, "--batch-size=48", TWO_CPUS]
    job = ran(folder, strategy="Mirrored", arguments=arguments, files={"mine.py": WIDE}, exports=False, code=2)
    assert (
        "--model=mine:model: loss root is computed of all examples of a batch together, and 2 replicas would send each "
        "other 77 MB of labels and outputs a step, which is more than 64 MB; return one value for each example, "
        "take a smaller batch, or train on one device\n"
    ) in job["worker-0"].log


SURPRISES = """
    import numpy as np
    import tensorflow as tf
    import keras

    def without_7(labels, outputs):
        counts = tf.cast(labels != 7, tf.float32)
        return tf.reduce_sum(counts * tf.square(labels - outputs)) / tf.reduce_sum(counts)

    def model():
        made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        made.compile(keras.optimizers.SGD(0.001), without_7)
        return made

    def data():
        numbers = np.arange(120, dtype="float32")[:, None]
        labels = np.where((numbers > 30) & (numbers % 3 == 0) & (numbers < 34) | (numbers > 100), 7, 5 + numbers / 100)
        whole = tf.data.Dataset.from_tensor_slices((numbers / 100, labels.astype("float32")))
        return {"training": whole, "held_out": whole}
"""


@pytest.mark.parametrize(("strategy", "more", "code"), [("OneDevice", (), 0), ("Mirrored", (TWO_CPUS,), 2)])
def test_a_loss_that_later_examples_show_to_be_no_mean_ends_a_job_of_several_replicas(
    folder: Path, strategy: str, more: tuple[str, ...], code: int
) -> None:
    arguments = [*MINE, "--no-shuffle", "--batch-size=60", "--epochs=8", "--steps-per-call=4", *more]
    files = {"mine.py": SURPRISES}
    job = ran(folder, strategy=strategy, arguments=arguments, files=files, exports=False, code=code)
    line = (
        r"--model=mine:model: its loss without_7 was the mean over the examples for the first examples, and is not for "
        r"others of step 1\d, so 2 replicas have trained steps up to 1\d wrongly; return one value for each example"
    )
    assert bool(re.search(line, job["worker-0"].log)) == bool(code)


COUNTS = """
    import tensorflow as tf
    import keras

    class Counts(keras.Model):
        def build(self, shape):
            self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)
            super().build(shape)

        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            self.seen.assign(self.seen + tf.reduce_mean(y))
            return tf.reduce_mean(tf.square(y - y_pred))

    def model():
        inputs = keras.Input((1,))
        made = Counts(inputs, keras.layers.Dense(1)(inputs))
        made.compile("sgd")
        return made

    def data():
        whole = tf.data.Dataset.range(100).map(lambda n: (tf.ones(1), tf.ones(1)))
        return {"training": whole, "held_out": whole.take(20)}
"""


@pytest.mark.parametrize(("strategy", "more", "code"), [("OneDevice", (), 0), ("Mirrored", (TWO_CPUS,), 2)])
def test_a_loss_that_sets_a_variable_trains_on_one_replica(
    folder: Path, strategy: str, more: tuple[str, ...], code: int
) -> None:
    arguments = [*MINE, "--batch-size=48", *more]
    job = ran(folder, strategy=strategy, arguments=arguments, files={"mine.py": COUNTS}, exports=False, code=code)
    line = "--model=mine:model: Counts.compute_loss sets variables of the model, and each of 2 replicas would set its"
    assert (line in job["worker-0"].log) == bool(code)


ORDERED = """
    import tensorflow as tf
    import keras

    def model():
        made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        made.compile(loss="mse")
        return made

    def data():
        def part(chosen):
            return tf.data.Dataset.range(75).filter(chosen).map(lambda n: (tf.cast(n, tf.float32)[None], n))

        return {"training": part(lambda n: n % 5 != 4), "held_out": part(lambda n: n % 5 == 4)}
"""


DROPPED = """
    import os
    import numpy as np
    import tensorflow as tf

    def model():
        if os.environ["TEST_KERAS"] == "keras":
            import keras
        else:
            import tf_keras as keras
        layers = keras.layers
        made = keras.Sequential(
            [
                layers.Input((4,)),
                layers.Reshape((2, 2)),
                layers.LSTM(8, dropout=0.2, recurrent_dropout=0.2),
                layers.Dropout(0.5, name="left_out"),
                layers.GaussianNoise(0.1),
                layers.Dense(3),
            ]
        )
        made.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return made

    def data():
        random = np.random.RandomState(1)
        inputs = random.standard_normal((480, 4)).astype("float32")
        whole = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :3].argmax(axis=1)))
        return {"training": whole.take(384), "held_out": whole.skip(384)}
"""
DROPPING = ("--epochs=5", "--batch-size=41", "--checkpoint-every-steps=20", "--checkpoint-keep=20")
"""47 steps. No number of replicas divides the batch, so one of them draws more random numbers than another."""
LAST = "ckpt-47"


@pytest.mark.parametrize(
    ("strategy", "more"), [("OneDevice", ()), ("Mirrored", (TWO_CPUS,)), ("MultiWorkerMirrored", ())], ids=str
)
def test_a_model_with_dropout_resumes_to_the_bit(tmp_path: Path, strategy: str, more: tuple[str, ...]) -> None:
    jobs: list[Job] = []
    environ = {"TEST_KERAS": "keras", **NO_EXPORT}
    arguments, files = [*MINE, *DROPPING, *more], {"mine.py": DROPPED}
    for name in ("alone", "again"):
        with Job(tmp_path / name, strategy=strategy, arguments=arguments, files=files) as job:
            if jobs:
                copy_checkpoint(jobs[0], job, step=20)
            assert set(job.start(environ=environ).wait().values()) == {0}
        jobs.append(job)
    assert "resumed: step 20 of 47" in job["worker-0"].log
    assert tensors(jobs[0].checkpoints / LAST) == tensors(jobs[1].checkpoints / LAST)


def test_central_storage_refuses_a_model_with_dropout(folder: Path) -> None:
    files, environ = {"mine.py": DROPPED}, {"TEST_KERAS": "keras"}
    arguments = [*MINE, TWO_CPUS]
    job = ran(folder, code=2, strategy="CentralStorage", arguments=arguments, files=files, environ=environ)
    assert job["worker-0"].last_words == (
        "strategy CentralStorage: the model draws random numbers, as for dropout, and TensorFlow lets no replica count "
        "them there; leave these layers out, or use strategy Mirrored"
    )


def test_a_checkpoint_of_a_model_with_dropout_goes_to_parameter_servers_and_back(folder: Path) -> None:
    """The model is of Keras 3 where it is alone, and of tf_keras on servers; nothing of it is counted as a loss."""
    kinds = (("OneDevice", "keras"), ("ParameterServer", "tf_keras"), ("OneDevice", "keras"))
    before = 0
    for turn, (strategy, library) in enumerate(kinds):
        place, last = folder / str(turn), turn == len(kinds) - 1
        arguments = [*MINE, *DROPPING, f"--epochs={before * 41 // 384 + 10 if last else 10000}"]
        with Job(place, strategy=strategy, arguments=arguments, files={"mine.py": DROPPED}) as job:
            if before:
                shutil.move(folder / "checkpoints", place)
            leader = job.start(environ={"TEST_KERAS": library})[job.leader]
            if before:
                leader.wait_for(rf"resumed: step {before} of \d+ from ")
            if last:
                assert leader.wait() == 0
            else:
                job.wait_for_checkpoint(before + 20)
                leader.kill(signal.SIGTERM)
                assert leader.wait() == 42
            before = job.newest_checkpoint
            assert "warning" not in leader.log
        shutil.move(job.checkpoints, folder)
    assert job.result["steps"] == before


@pytest.mark.parametrize("seed", [0, 7])
def test_each_epoch_is_shuffled_by_its_seed_and_a_resumed_stream_goes_on_exactly(tmp_path: Path, seed: int) -> None:
    import keras

    source = own_data(tmp_path, ORDERED, shuffle=True)
    # The numbers of examples are not given.
    assert (source.examples, source.validation_examples) == (60, 15)
    validation = [int(n) for _, labels in source.validation(batch=4) for n in labels]
    assert validation == list(range(4, 75, 5))

    keras.utils.set_random_seed(0)  # which would make TensorFlow take a seed of 0 for none
    seen = numbers(source, batch=8, seed=seed, steps=15)
    assert sorted(seen[:60]) == sorted(seen[60:120]) == sorted(set(range(75)) - set(validation))
    assert seen[:60] != seen[60:120]
    assert seen[:60] != sorted(seen[:60])
    for step in (1, 7, 8, 11):
        assert numbers(source, batch=8, seed=seed, steps=15 - step, first_step=step) == seen[8 * step :]
    assert numbers(source, batch=8, seed=seed + 1, steps=15) != seen


def test_the_order_may_be_left_as_it_is(tmp_path: Path) -> None:
    source = own_data(tmp_path, ORDERED, shuffle=False)
    expected = [n for n in range(75) if n % 5 != 4]
    assert numbers(source, batch=8, seed=0, steps=15) == expected * 2


def test_the_functions_of_a_dataset_may_use_if_where_it_is_made_in_a_graph(tmp_path: Path) -> None:
    """As the workers of parameter servers make it."""
    import tensorflow as tf

    data = """
        import tensorflow as tf
        def data():
            def example(number):
                if number > 3:
                    number = -number
                return tf.ones(2), number
            whole = tf.data.Dataset.range(10)
            return {"training": whole.take(8).map(example), "held_out": whole.skip(8).map(example)}
    """
    source = own_data(tmp_path, data, shuffle=False)

    @tf.function(autograph=False)
    def first_batch():
        return next(iter(source.batches(batch=4, seed=0)))[1]

    assert first_batch().numpy().tolist() == [0, 1, 2, 3]
    assert numbers(source, batch=4, seed=0, steps=2) == [0, 1, 2, 3, -4, -5, -6, -7]


def own_data(folder: Path, text: str, *, shuffle: bool):
    """The source of a user's module."""
    from dtj_trainer.config.entry_points import Name
    from dtj_trainer.data.own_dataset import OwnData

    space: dict[str, object] = {}
    path = folder / "mine.py"
    path.write_text(textwrap.dedent(text))
    # AutoGraph reads the source in the file.
    exec(compile(path.read_text(), path, "exec"), space)
    return OwnData(Name(flag="--data", module="mine", function="data"), space["data"], shuffle=shuffle)


def numbers(source, *, batch: int, seed: int, steps: int, first_step: int = 0) -> list[int]:
    """The labels of this many batches."""
    stream = source.batches(batch=batch, seed=seed, first_step=first_step).take(steps)
    return [int(n) for _, labels in stream for n in labels]


WRONG = """
    import os
    import numpy as np
    import tensorflow as tf
    import keras

    number = 7

    def model():
        made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        made.compile(loss="mse")
        return made

    def bare():
        return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

    def broken():
        raise ValueError("no such\\nlayer")

    def text():
        return "a model"

    def whole():
        made = bare()
        made.compile(loss=lambda labels, outputs: tf.reduce_mean(tf.square(labels - outputs)))
        return made

    def flat():
        made = bare()
        made.compile(loss=lambda labels, outputs: tf.reshape(tf.square(labels - outputs * [[1.0, 2.0]]), [-1]))
        return made

    def paired():
        made = bare()
        made.compile(loss=lambda labels, outputs: tf.square(outputs - tf.reduce_mean(outputs)))
        return made

    def one(width=2):
        return tf.data.Dataset.from_tensor_slices((np.zeros((20, width), "float32"), np.zeros(20)))

    def texts():
        return {"training": one(), "held_out": "a path"}

    def other():
        return {"training": one(), "validation": one()}

    def both(of):
        return {"training": of, "held_out": of}

    def data():
        return both(one())

    def batched():
        return both(one().batch(4))

    def endless():
        return both(one().repeat())

    def shapeless():
        return both(one().map(lambda x, y: (tf.numpy_function(lambda value: value, [x], x.dtype), y)))

    def empty():
        return both(one().take(0))

    def alone():
        return both(one().map(lambda inputs, labels: inputs))

    def wide():
        return both(one(width=3))

    def failing():
        checked = one().map(lambda inputs, labels: (tf.debugging.check_numerics(inputs / 0, "bad pixel"), labels))
        return both(checked.filter(lambda *_: True))
"""
CASES = [
    ("mine:bare --loss=square", "mine:data", r"--loss=square: Keras has no such loss; give one of keras.losses, such"),
    ("nowhere:model", "mine:data", r"--model=nowhere:model: there is no module nowhere; put it into the working "),
    ("mine.deeper:model", "mine:data", r"--model=mine.deeper:model: there is no module mine.deeper; put it "),
    ("mine:absent", "mine:data", r"--model=mine:absent: mine \(.*/mine.py\) has no absent; it has model, bare, broken"),
    ("mine:number", "mine:data", r"--model=mine:number: of type int, not a function; name one that takes no arguments"),
    (
        "mine:broken",
        "mine:data",
        r"--model=mine:broken: broken\(\) raised ValueError: no such layer \(.*mine.py, line",
    ),
    ("mine:text", "mine:data", r"--model=mine:text: returned a str; return a Keras model"),
    ("mine:bare", "mine:data", r"--model=mine:bare: the model is not compiled; compile it with a loss, or give --loss"),
    *(
        (
            f"mine:{model} --strategy=Pipeline",
            "mine:data",
            rf"--model=mine:{model}: strategy Pipeline takes .* one value for each example, and its loss {gives}; ret",
        )
        for model, gives in (
            ("whole", "gives one number for a whole batch"),
            ("flat", "gives another number of values"),
            ("paired", "is not of single examples"),
        )
    ),
    ("mine:model", "mine:wide", r"--model=mine:model: the model takes \(None, 2\), the examples of --data=mine:wide"),
    ("mine:model", "mine:text", r"--data=mine:text: returned a str; return {'training': …, 'held_out': …}, two tf"),
    ("mine:model", "mine:one", r"--data=mine:one: returned one dataset; return {'training': …, 'held_out': …}, two tf"),
    ("mine:model", "mine:texts", r"--data=mine:texts: returned a mapping with a str; return {'training': …, "),
    ("mine:model", "mine:other", r"--data=mine:other: returned a mapping of training, validation; return {'training'"),
    ("mine:model", "mine:batched", r"--data=mine:batched: gives a tensor of shape \(None, 2\), which looks like batch"),
    (
        "mine:model",
        "mine:shapeless",
        r"--data=mine:shapeless: gives inputs of unknown shape, as numpy_function and py_f",
    ),
    ("mine:model", "mine:endless", r"--data=mine:endless: the dataset has no end; leave .repeat\(\) out"),
    ("mine:model", "mine:empty", r"--data=mine:empty: no training examples; give at least one"),
    ("mine:model", "mine:alone", r"--data=mine:alone: gives elements of TensorSpec.*; return {'training': …"),
    ("mine:model", "mine:failing", r"--data=mine:failing: reading the training examples failed: .*bad pixel"),
]


@pytest.mark.parametrize(("model", "data", "line"), CASES, ids=[f"{model} {data}" for model, data, _ in CASES])
def test_what_is_not_as_it_has_to_be_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, data: str, line: str
) -> None:
    """In this process: a real one takes seconds."""
    from dtj_trainer.errors import UsageError

    (tmp_path / "mine.py").write_text(textwrap.dedent(WRONG))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    with pytest.raises(UsageError) as refusal:
        learn_one_batch(*f"--model={model}".split(), f"--data={data}")
    assert re.match(line, str(refusal.value)), str(refusal.value)
    assert "\n" not in str(refusal.value)


TWO_WORKERS = json.dumps(
    {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 0}}
)


def learn_one_batch(*argv: str) -> None:
    """Loads the user's model and data in a process, and computes one batch."""
    from dtj_trainer.config import entry_points
    from dtj_trainer.config.parsing import parse
    from dtj_trainer.training.model import prepare

    config = parse(argv, {"TF_CONFIG": TWO_WORKERS} if "--strategy=Pipeline" in argv else {})
    entry_points.check(config.user_code)
    factory, source = prepare(config)
    inputs, labels = next(iter(source.batches(batch=4, seed=0)))
    factory.compute_metrics(factory.build(source)(inputs), labels)
