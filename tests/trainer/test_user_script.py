"""`--script`: any program is a replica, with what Python gives it and an end that the operator understands."""

import re
import signal
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from trainer.cluster import Job, launched_once, ran, refused

HERE = Path(__file__).resolve().parent
INTERPRETED = HERE / "scripts" / "interpreted.py"


def test_a_script_is_main_with_its_arguments_environment_children_and_exit_code(folder: Path) -> None:
    arguments = [f"--script={INTERPRETED}", f"--checkpoint-dir={folder / 'elsewhere'}", "--", "7", "children"]
    worker = ran(folder, code=7, arguments=arguments)["worker-0"]
    assert "name __main__  file interpreted.py  neighbour neighbour\n" in worker.log
    assert 'TF_CONFIG {"cluster": {"worker": ["127.0.0.1:' in worker.log
    assert f"checkpoints {folder / 'elsewhere'}\n" in worker.log
    assert "fork -15\nspawn -15\n" in worker.log
    assert worker.log.endswith("exit handler\n")


def test_a_script_finds_its_files_by_its_own_path_from_any_directory_and_its_name_is_as_given(folder: Path) -> None:
    text = "import os, sys\nos.chdir('/')\nprint(os.path.exists(__file__), __file__, sys.argv[0])\n"
    assert f"True {folder / 'train.py'} train.py\n" in ran(folder, script=text)["worker-0"].log


def test_the_leader_logs_its_versions(folder: Path) -> None:
    worker = ran(folder, arguments=[f"--script={INTERPRETED}", "--", "0"])["worker-0"]
    assert re.search(r"^versions: python 3\.\d+\.\d+.*, tensorflow(-cpu)? 2\.\d+", worker.log, re.MULTILINE), worker.log


def test_a_module_is_run_by_its_name(folder: Path) -> None:
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "train.py").write_text("import sys\nprint(__name__, __package__, sys.argv[1:])\n")
    job = ran(folder, arguments=["--script=package.train", "--", "a", "--b"])
    assert job["worker-0"].log.endswith("__main__ package ['a', '--b']\n")


ALONE = """
import tensorflow as tf
strategy = tf.distribute.{strategy}()
with strategy.scope():
    v = tf.Variable(1.0)
def learn():
    with tf.GradientTape() as tape:
        loss = v * v
    return tf.distribute.get_replica_context().all_reduce("sum", tape.gradient(loss, v))
tf.function(strategy.run)(learn)
from dtj_trainer.process.task_context import TaskContext
print("reported", TaskContext.current.progress_store.progress.warning)
"""


@pytest.mark.parametrize(("strategy", "warns"), [("MirroredStrategy", True), ("MultiWorkerMirroredStrategy", False)])
def test_a_script_that_trains_alone_in_a_job_of_two_workers_is_noticed(
    folder: Path, strategy: str, warns: bool
) -> None:
    text = ALONE.format(strategy=strategy)
    job = ran(folder, code=2 if warns else 0, strategy="MultiWorkerMirrored", script=text, imported=True)
    for replica in job.replicas.values():
        assert ("warning: train.py trains alone: the job has 2 workers" in replica.log) == warns, replica.log
        assert ("reported train.py trains alone" in replica.log) == warns, replica.log


LAST_SUM = """
import atexit, json, os, pathlib, time
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)
atexit.register(lambda: print("the other has its sum", pathlib.Path("sum").exists(), flush=True))
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == {slow}:
    time.sleep(2)
    pathlib.Path("sum").touch()
"""


@pytest.mark.parametrize("slow", [0, 1])
def test_a_script_leaves_when_the_other_workers_have_what_was_last_computed_with_them(folder: Path, slow: int) -> None:
    text = LAST_SUM.format(slow=slow)
    job = ran(folder, strategy="MultiWorkerMirrored", script=text, imported=True)
    for replica in job.replicas.values():
        assert "the other has its sum True\n" in replica.log


BY_CHANCE = """
import random
import numpy as np
drawn = [random.random(), np.random.rand(), np.random.default_rng().random()]
import tensorflow as tf
shuffled = tf.data.Dataset.range(20).shuffle(20)
drawn += [float(tf.random.uniform([])), *map(int, shuffled), float(tf.keras.initializers.GlorotUniform()((1, 1))[0, 0])]
print("drawn", drawn)
"""


def test_chance_decides_alike_on_all_tasks_and_at_every_attempt_of_a_job(folder: Path) -> None:
    drawn = {}
    with Job(folder, strategy="MultiWorkerMirrored", script=BY_CHANCE) as job:
        for attempt, uid, seed in (
            ("1", "one", ()),
            ("2", "one", ()),
            ("1", "other", ()),
            ("1", "one", ("--seed=4294967301",)),
            ("1", "other", ("--seed=5",)),
        ):
            job.start(environ={"DTJ_ATTEMPT": attempt, "DTJ_JOB_UID": uid}, arguments=seed)
            assert job.wait() == {"worker-0": 0, "worker-1": 0}
            job.imported = True  # the first start was as in a pod
            lines = [re.findall("^drawn .*", replica.log, re.M)[-1] for replica in job.replicas.values()]
            assert lines[0] == lines[1]
            drawn[attempt, uid, *seed] = lines[0]
    first, second, other, *seeded = drawn.values()
    assert first == second
    assert seeded[0] == seeded[1]
    assert len({first, other, seeded[0]}) == 3
    assert "--seed=5 gives them again" in job["worker-0"].log
    assert "gives them again" not in job["worker-1"].log


APART = """
import numpy as np
import tensorflow as tf
{keras}
strategy = tf.distribute.MultiWorkerMirroredStrategy()
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
{train}
print("trained")
"""
BY_FIT = """model.compile("sgd", "mse")
model.fit(x, y, verbose=0)"""
BY_STEPS = """with tf.GradientTape() as tape:
    loss = tf.reduce_mean((model(x) - y) ** 2)
keras.optimizers.SGD().apply_gradients(zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights))
raise SystemExit"""


@pytest.mark.parametrize(
    ("keras", "train", "line", "trained"),
    [("keras", BY_FIT, 9, False), ("tf_keras", BY_FIT, 9, True), ("keras", BY_STEPS, 10, False)],
    ids=["fit", "fit of tf_keras", "steps of its own"],
)
def test_workers_that_train_without_ever_summing_end_with_the_line_of_the_script(
    folder: Path, keras: str, train: str, line: int, trained: bool
) -> None:
    text = APART.format(keras=f"import {keras} as keras", train=train)
    job = ran(folder, code=2, strategy="MultiWorkerMirrored", script=text, imported=True)
    for replica in job.replicas.values():
        assert replica.last_words.startswith(f"train.py:{line}: 2 workers train 2 models: ")
        assert ("trained\n" in replica.log) == trained


WAITS = """
import json, os, time
import tensorflow as tf
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    time.sleep(600)
tf.distribute.MultiWorkerMirroredStrategy()
"""


def test_a_strategy_that_another_worker_does_not_make_is_not_waited_for_without_end(folder: Path) -> None:
    limits, program = ["--start-timeout=15", "--stall-timeout=3"], launched_once()
    with Job(folder, strategy="MultiWorkerMirrored", script=WAITS, arguments=limits, program=program) as job:
        assert job.start()["worker-0"].wait() == 75
    # TensorFlow holds the interpreter's lock meanwhile, so that the stacks say where the script waits, and no line.
    assert '/train.py", line 6 in <module>' in job["worker-0"].log


def test_an_error_shows_the_frames_of_the_script_and_is_one(folder: Path) -> None:
    job = ran(folder, code=1, script="def learn():\n    raise KeyError('weights')\n\nlearn()\n")
    assert re.findall(r'File "([^"]+)"', job["worker-0"].log) == [str(folder / "train.py")] * 2
    assert job["worker-0"].last_words == "train.py:2: KeyError: 'weights'"


@pytest.mark.parametrize("said", ["'no data'", "OSError('no data')"])
def test_a_script_that_ends_with_words_or_an_error_has_failed_and_says_so(folder: Path, said: str) -> None:
    job = ran(folder, code=1, script=f"raise SystemExit({said})\n")
    assert job["worker-0"].log.endswith("no data\n")


@pytest.mark.parametrize(("does", "code", "last"), [((), 143, "SIGTERM: leaving at once"), (("handle",), 1, "handled")])
def test_a_script_that_is_asked_to_stop_stops_at_once_or_as_its_own_handler_says(
    folder: Path, does: Sequence[str], code: int, last: str
) -> None:
    with Job(folder, arguments=[f"--script={INTERPRETED}", "--", "0", "wait", *does]) as job:
        worker = job.start()["worker-0"]
        worker.wait_for("waiting")
        worker.kill(signal.SIGTERM)
        assert worker.wait() == code
    assert last in worker.log


BACKS_UP = """
import pathlib, time
import keras, numpy as np

class Slow(keras.Sequential):
    def save_weights(self, filepath, overwrite=True):
        super().save_weights(filepath, overwrite=overwrite)
        whole = pathlib.Path(filepath).read_bytes()
        pathlib.Path(filepath).write_bytes(whole[:len(whole) // 2])
        print("writing", flush=True)
        while not pathlib.Path("go on").exists():
            time.sleep(0.01)
        pathlib.Path(filepath).write_bytes(whole)

model = Slow([keras.layers.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
say = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: print("epoch", epoch, flush=True))
x = np.ones((4, 2), "float32")
model.fit(x, x[:, :1], epochs=2, verbose=0, callbacks=[keras.callbacks.BackupAndRestore("backup"), say])
"""


def test_a_backup_that_is_being_written_is_complete_before_a_script_that_is_asked_to_stop_leaves(folder: Path) -> None:
    with Job(folder, script=BACKS_UP, imported=True) as job:
        worker = job.start()["worker-0"]
        worker.wait_for("writing")
        worker.kill(signal.SIGTERM)
        worker.wait_for("SIGTERM: leaving when the file that is being written is complete")
        (folder / "go on").touch()
        assert worker.wait() == 143
        assert job.start().wait() == {"worker-0": 0}
    assert re.findall(r"^epoch \d", job["worker-0"].log, re.M) == ["epoch 0", "epoch 1"]


def test_a_backup_in_a_session_that_python_itself_runs_is_complete_as_well(folder: Path) -> None:
    session = "import dtj_trainer\nwith dtj_trainer.session() as s:\n"
    script = session + textwrap.indent(BACKS_UP, "    ")
    with Job(folder, files={"train.py": script}, program=("train.py",)) as job:
        worker = job.start()["worker-0"]
        worker.wait_for("writing")
        worker.kill(signal.SIGTERM)
        worker.wait_for("SIGTERM: leaving when the file that is being written is complete")
        (folder / "go on").touch()
        assert worker.wait() == 143


STOPPED = """
import signal, sys, time
import keras, numpy as np, tensorflow as tf

if sys.argv[2:]:
    signal.signal(signal.SIGTERM, lambda *_: (print("handled", flush=True), sys.exit(3)))
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x, y = np.ones((64, 2), "float32"), np.ones((64, 1), "float32")

class Say(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("in the midst", flush=True)

if sys.argv[1] == "fit":
    model.fit(x, y, batch_size=2, epochs=10_000, verbose=0, callbacks=[Say()])
print("in the midst", flush=True)
while sys.argv[1] == "evaluate":
    model.evaluate(x, y, batch_size=2, verbose=0)
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("does", "code", "last"),
    [
        (["fit"], 143, "SIGTERM: leaving at once"),
        (["evaluate"], 143, "SIGTERM: leaving at once"),
        (["loop"], 143, "SIGTERM: leaving at once"),
        (["loop", "handle"], 3, "handled"),
    ],
)
def test_a_script_with_a_strategy_of_several_workers_stops_when_it_is_asked_to(
    folder: Path, does: list[str], code: int, last: str
) -> None:
    with Job(folder, strategy="MultiWorkerMirrored", script=STOPPED, arguments=["--", *does]) as job:
        workers = job.start()
        for worker in workers.replicas.values():
            worker.wait_for("in the midst")
        job["worker-1"].kill(signal.SIGTERM)
        assert job["worker-1"].wait() == code
    assert last in job["worker-1"].log


@pytest.mark.parametrize("call", ["fit(x, x[:, :1])", "predict(x)", "train_on_batch(x, x[:, :1])"])
def test_keras_under_central_storage_is_refused_where_replicas_share_variables(folder: Path, call: str) -> None:
    script = f"""
        import keras
        import numpy as np
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        with tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:0").scope():
            model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        x = np.ones([16, 4], "float32")
        model.{call}
    """
    job = ran(folder, code=2, strategy="Mirrored", script=script)
    assert "under CentralStorageStrategy, whose 2 replicas share each variable" in job["worker-0"].last_words


def test_the_lost_peer_of_a_plain_script_is_recognized_by_its_exit_code(folder: Path) -> None:
    options = [f"--script={HERE / 'scripts' / 'collective.py'}"]
    with Job(folder, strategy="MultiWorkerMirrored", arguments=options) as job:
        for worker in job.start().replicas.values():
            worker.wait_for(r"workers 2\.0")
        job["worker-1"].kill()
        assert job["worker-0"].wait() == 75
    assert job["worker-0"].last_words.startswith("peer lost: worker 1 not reachable; UnavailableError: Collective ops ")


ONE_MORE_CALL = """
import json, os, sys
import keras, numpy as np, tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
model.fit(x, y, batch_size=8, verbose=0)
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == int(sys.argv[1]):
    model.evaluate(x, y, verbose=0)
"""


@pytest.mark.parametrize(("waits", "completes"), [(0, 1), (1, 0)])
def test_a_worker_in_a_call_that_a_completed_one_does_not_make_is_not_waited_for_without_end(
    folder: Path, waits: int, completes: int
) -> None:
    with Job(folder, strategy="MultiWorkerMirrored", script=ONE_MORE_CALL, arguments=["--", str(waits)]) as job:
        assert job.start().wait() == {f"worker-{waits}": 75, f"worker-{completes}": 0}
    assert job[f"worker-{waits}"].last_words.startswith(f"peer lost: worker {completes} not reachable; ")


def test_every_role_of_a_parameter_server_job_runs_the_script(folder: Path) -> None:
    job = ran(folder, strategy="ParameterServer", arguments=[f"--script={HERE / 'scripts' / 'serves.py'}"])
    assert "count 5.0" in job["chief-0"].log


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--script=nowhere.py"], "--script=nowhere.py: no such file in {}; mount or copy it there, "),
        (["--script=no.module"], "--script=no.module: no such module (No module named 'no'); "),
        (["--script=needs.train"], "--script=needs.train: its package cannot be imported (No module named 'absent'); "),
        (["--script=."], "--script=.: no such module"),
        (["--script=./"], "--script=./: cannot be read (Is a directory); give a file of Python code"),
        (["--script=program.py"], "--script=program.py: source code string cannot contain null bytes; give a file of "),
        (["--script=unfinished.py"], "--script=unfinished.py: line 1: '(' was never closed; give a file of Python"),
        (["--script="], "--script=: empty; give a Python file or the dotted name of a module"),
        (["--script=a.py", "--epochs=3"], "--epochs=3: only the trainer's own loop reads this, and --script=a.py "),
        (["--", "--token=hidden"], "--: arguments for a script follow, but there is no --script; give one"),
    ],
)
def test_what_is_no_script_is_refused_in_one_line_and_what_is_missing_may_come(
    tmp_path: Path, arguments: Sequence[str], line: str
) -> None:
    (tmp_path / "program.py").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "unfinished.py").write_text("x = (\n")
    (tmp_path / "needs").mkdir()
    (tmp_path / "needs" / "__init__.py").write_text("import absent\n")
    (tmp_path / "needs" / "train.py").touch()
    missing = "no such" in line or "cannot be imported" in line
    printed = refused(tmp_path, *arguments, restart_may_help=missing)
    assert printed.startswith(f"dtj_trainer: {line.format(tmp_path)}")
