"""The library in a loop of the user's own: asked to stop and killed, it ends with the bits of a run that was not."""

import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer.cluster import SOON, Job, ran, run_interrupted_twice
from trainer.outcome import tensors

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "own_loop" / "train.py"
ONE: Mapping[str, int] = {"worker": 1}
TWO: Mapping[str, int] = {"worker": 2}


def job(
    folder: Path,
    roles: Mapping[str, int],
    script: Path,
    *words: str,
    strategy: str | None = None,
    imported: bool = True,
    every: int = 20,
) -> Job:
    """A job whose tasks run the script, with a checkpoint after every this many steps."""
    strategy = strategy or ("OneDevice" if roles == ONE else "MultiWorkerMirrored")
    options = (f"--script={script}", f"--checkpoint-every-steps={every}", "--checkpoint-keep=100", "--", *words)
    return Job(folder, strategy=strategy, roles=roles, arguments=options, imported=imported)


@pytest.mark.parametrize("roles", [ONE, TWO], ids=["OneDevice", "MultiWorkerMirrored"])
def test_the_example_ends_with_the_same_bits_wherever_it_was_interrupted(
    folder: Path, tmp_path: Path, roles: Mapping[str, int]
) -> None:
    steps = 600
    with job(tmp_path / "whole", roles, EXAMPLE, f"--steps={steps}", imported=False, every=steps) as whole:
        assert set(whole.start().wait().values()) == {0}
    with job(folder, roles, EXAMPLE, f"--steps={steps}") as broken:
        run_interrupted_twice(broken, total=steps)
    assert tensors(broken.checkpoints / f"ckpt-{steps}") == tensors(whole.checkpoints / f"ckpt-{steps}")
    log = broken["worker-0"].log
    assert re.search(rf"^step {steps}/{steps} \(100%\)  loss ", log, re.M)
    assert float(re.search(r"not seen: (\S+)", log)[1]) > 0.8  # type: ignore[index]
    assert (folder / "export" / "1" / "saved_model.pb").exists()
    if roles == TWO:
        assert "not seen" not in broken["worker-1"].log


@pytest.mark.parametrize("built", [(), ("late",)], ids=["built", "built by fit"])
def test_fit_is_stopped_and_resumed_like_a_loop(folder: Path, tmp_path: Path, built: tuple[str, ...]) -> None:
    script = HERE / "scripts" / "fits.py"
    with job(tmp_path / "whole", ONE, script, "200", *built, imported=False, every=200) as whole:
        assert whole.start().wait() == {"worker-0": 0}
    with job(folder, ONE, script, "200", *built) as broken:
        run_interrupted_twice(broken, total=200)
    assert tensors(broken.checkpoints / "ckpt-200") == tensors(whole.checkpoints / "ckpt-200")


def test_a_coordinator_of_parameter_servers_goes_on_where_it_was_stopped(folder: Path) -> None:
    roles = {"chief": 1, "worker": 1, "ps": 1}
    script = HERE / "scripts" / "coordinates.py"
    with job(folder, roles, script, "400", strategy="ParameterServer") as servers:
        servers.hold_at(20)
        chief = servers.start()["chief-0"]
        servers.wait_for_checkpoint(20)
        chief.kill(signal.SIGTERM)
        servers.let_go()
        assert chief.wait() == 42
        chief = servers.start("chief-0")["chief-0"]
        assert chief.wait() == 0
        chief.wait_for(r"resumed: step \d+ from")
        chief.wait_for(r"total 4000\.0\n")
        for name in ("worker-0", "ps-0"):
            servers[name].kill(signal.SIGTERM)
            assert servers[name].wait() == 143


REFUSED = {
    "checkpoint(number=...): int has no variables": "s.checkpoint(number=1)",
    "checkpoint(model=...): the model has no weights yet": (
        "import keras; s.checkpoint(model=keras.Sequential([keras.layers.Dense(1)]))"
    ),
    "the model has no weights yet; begin it": (
        "import keras; m = keras.Sequential([keras.layers.Dense(1)]); m.compile('sgd', 'mse')\n"
        "    s.checkpoint(m=m)\n    list(s.steps(1))"
    ),
    "no fit with callback() of the session has restored it": (
        "import keras; m = keras.Sequential([keras.layers.Dense(1)]); m.compile('sgd', 'mse')\n"
        "    s.checkpoint(m=m)\n    s.advance()"
    ),
    "checkpoint() was called twice": "s.checkpoint(); s.checkpoint()",
    "checkpoint(step=...): this name is taken": "s.checkpoint(step=1)",
}


def test_a_session_used_wrongly_says_so_in_one_line(folder: Path) -> None:
    for line, code in REFUSED.items():
        text = f"import dtj_trainer\nwith dtj_trainer.session() as s:\n    {code}\n"
        wrong = ran(folder, code=2, script=text, imported=True)
        assert line in wrong["worker-0"].last_words
        assert "Traceback" not in wrong["worker-0"].log


SWAPPED = """
    import keras
    import dtj_trainer

    with dtj_trainer.session() as s:
        with s.strategy.scope():
            keras.layers.Dense(1)
            layers = [keras.layers.Dense(4, name=name) for name in {names}]
            model, optimizer = keras.Sequential([keras.Input((4,)), *layers]), keras.optimizers.Adam()
            optimizer.build(model.trainable_variables)
        s.checkpoint(nets={{"one": model}}, optimizer=optimizer)
        list(s.steps({steps}))
"""


def test_a_checkpoint_whose_layers_were_swapped_is_refused_in_a_session_too(folder: Path) -> None:
    for names, steps, ends in ((("a", "b"), 3, 0), (("b", "a"), 6, 2), (("a", "b"), 6, 0)):
        job = ran(folder, code=ends, script=SWAPPED.format(names=names, steps=steps), imported=True)
        if ends:
            assert "nets/0 is one/a/kernel, this model wants one/b/kernel;" in job["worker-0"].last_words
    assert "resumed: step 3" in job["worker-0"].log


def test_a_session_after_tensorflow_has_begun_says_so(folder: Path) -> None:
    text = "import dtj_trainer, tensorflow as tf\ntf.zeros(1)\nwith dtj_trainer.session() as s: pass\n"
    late = ran(folder, code=2, strategy="MultiWorkerMirrored", roles=ONE, script=text)
    assert "enter the session before TensorFlow has computed anything" in late["worker-0"].last_words


MADE_OUTSIDE = """
import dtj_trainer, keras
import tensorflow as tf

with dtj_trainer.session() as s:
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    optimizer = keras.optimizers.SGD(0.5, momentum=0.5)
    s.checkpoint(model=model, optimizer=optimizer)

    @tf.function
    def step():
        def of_replica():
            place = tf.distribute.get_replica_context().replica_id_in_sync_group
            x = tf.ones((1, 2)) * (1.0 + tf.cast(place, "float32"))
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(x)) / 2
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
        s.strategy.run(of_replica)

    for _ in s.steps(2):
        step()
    print("learned", model.get_weights()[0].ravel().tolist())
"""


def test_what_is_made_outside_the_scope_learns_from_all_replicas(folder: Path) -> None:
    done = ran(folder, strategy="Mirrored", script=MADE_OUTSIDE, arguments=["--logical-cpus=2"], imported=True)
    # The halves of both replicas are 1.5: a step of 0.75, and one of 0.75 with half of the first one by the momentum.
    assert "learned [-0.875, -0.875]" in done["worker-0"].log


MIXED = """
    import dtj_trainer, keras
    import numpy as np

    with dtj_trainer.session() as s:
        optimizer, metric = keras.optimizers.Adagrad(0.1), keras.metrics.MeanAbsoluteError()
        with s.strategy.scope():
            model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
            model.compile(optimizer, "mse", metrics=[metric])
        s.checkpoint(model=model, optimizer=optimizer)
        x = np.ones((8, 2), "float32")
        model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[s.callback()])
        print("accumulated", float(optimizer.variables[2].numpy().ravel()[0]) > 0.1)
"""


def test_an_optimizer_that_is_made_before_the_scope_trains_a_model_of_the_scope_on_one_replica(folder: Path) -> None:
    assert "accumulated True" in ran(folder, script=MIXED, imported=True)["worker-0"].log


FITS = """
import sys
import dtj_trainer, keras
import numpy as np

with dtj_trainer.session() as s:
    with s.strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01, **{sys.argv[1]: int(sys.argv[2])}), "mse")
    s.checkpoint(model=model, optimizer=model.optimizer)
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    model.fit(x, x[:, :1], batch_size=8, shuffle=False, verbose=0, callbacks=[s.callback()])
    print("learned", *model.get_weights()[0].ravel())
"""


@pytest.mark.parametrize("option", [("clipnorm", "1000"), ("gradient_accumulation_steps", "2")], ids=lambda one: one[0])
def test_fit_in_a_session_clips_and_accumulates_as_on_one_device(folder: Path, option: tuple[str, str]) -> None:
    learned = []
    for strategy in ("OneDevice", "Mirrored"):
        arguments = ["--logical-cpus=2", "--", *option]
        done = ran(folder / strategy, strategy=strategy, script=FITS, arguments=arguments, imported=True)
        learned.append([float(one) for one in re.findall(r"^learned (.*)", done["worker-0"].log, re.M)[0].split()])
    assert learned[1] == pytest.approx(learned[0], abs=1e-6)


COMPILED = """
import sys
import dtj_trainer, keras
import numpy as np
import tensorflow as tf

total = int(sys.argv[1])
with dtj_trainer.session() as s:
    with s.strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.1), "mse")
    s.checkpoint(models={"one": model})
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1] ** 2)).batch(8).repeat()
    model.fit(data.skip(s.step), steps_per_epoch=total - s.step, verbose=0, callbacks=[s.callback()])
    print("learned", int(model.optimizer.iterations.numpy()), *model.get_weights()[0].ravel())
"""


@pytest.mark.parametrize("strategy", ["OneDevice", "Mirrored"])
def test_a_checkpoint_of_a_compiled_model_holds_its_optimizer(folder: Path, strategy: str) -> None:
    def learned(directory: str, steps: int) -> str:
        done = ran(
            folder / f"{directory}-{steps}", strategy=strategy, script=COMPILED, imported=True,
            arguments=[f"--checkpoint-dir={folder / directory}", "--logical-cpus=2", "--", str(steps)],
        )  # fmt: skip
        return re.findall(r"^learned (.*)", done["worker-0"].log, re.M)[0]

    at_once = learned("once", 8)
    learned("twice", 3)
    assert at_once.startswith("8 ")
    assert learned("twice", 8) == at_once


@pytest.mark.parametrize("strategy", ["OneDevice", "Mirrored", "MultiWorkerMirrored"])
def test_fit_without_steps_that_are_left_trains_none_of_data_without_end(folder: Path, strategy: str) -> None:
    with Job(
        folder, strategy=strategy, script=COMPILED, arguments=["--logical-cpus=2", "--", "3"], imported=True
    ) as job:
        for _ in ("trains", "is started again"):
            assert set(job.start().wait(SOON).values()) == {0}
    learned = re.findall(r"^learned (.*)", job["worker-0"].log, re.M)
    assert learned[0].startswith("3 ")
    assert learned[0] == learned[1]
    assert job["worker-0"].log.count("steps_per_epoch (or steps) is 0: no batch is taken of data without end") == 1


WITHOUT_KERAS = """
import dtj_trainer

with dtj_trainer.session() as s:
    for _ in s.steps(2):
        pass
"""


def test_a_script_need_not_import_keras(folder: Path) -> None:
    assert "step 2/2" in ran(folder, script=WITHOUT_KERAS)["worker-0"].log


IN_PARTS = """
import sys, time
import dtj_trainer, keras
import numpy as np
import tensorflow as tf

with dtj_trainer.session() as s:
    with s.strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    s.checkpoint(model=model)
    data = tf.data.Dataset.from_tensors((np.ones((4, 2), "float32"), np.ones((4, 1), "float32"))).repeat()
    for end, way in zip((10, 60), sys.argv[1:]):
        if s.step < end and way == "fit":
            model.fit(data, steps_per_epoch=end - s.step, verbose=0, callbacks=[s.callback()])
        while s.step < end and way == "advance":
            s.advance()
        for _ in s.steps(end) if way != "fit" else ():
            pass
    print("evaluating", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("ways", ["steps steps", "fit fit", "steps advance"])
def test_every_loop_of_a_script_saves_when_it_is_asked_to_stop_and_what_follows_leaves_at_once(
    folder: Path, ways: str
) -> None:
    words = ["--checkpoint-every-steps=20", "--", *ways.split()]
    with Job(folder, script=IN_PARTS, arguments=words, imported=True) as job:
        job.hold_at(20)
        job.start().wait_for_checkpoint(20)
        job["worker-0"].kill(signal.SIGTERM)
        job["worker-0"].wait_for("SIGTERM")
        job.let_go()
        assert job["worker-0"].wait() == 42
        assert job["worker-0"].last_words.startswith("preempted: all tasks saved step ")
        job.start()["worker-0"].wait_for("evaluating")
        job["worker-0"].kill(signal.SIGTERM)
        assert job["worker-0"].wait(SOON) == 143
