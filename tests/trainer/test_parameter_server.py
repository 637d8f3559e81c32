"""ParameterServer by real processes: one coordinator, two workers, one parameter server."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.eager import executor

from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.errors import UsageError
from dtj_trainer.training import parameter_server
from support.waiting import eventually
from trainer import endings
from trainer.cluster import PATH, SOON, Job, inherited, launched_once, ran, stopped

STRATEGY = "ParameterServer"
ROLES = {"chief": 1, "worker": 2, "ps": 1}
WITH_EVALUATOR = {**ROLES, "evaluator": 1}
COORDINATOR = """
import time
import tensorflow as tf
from dtj_trainer.training import parameter_server
parameter_server.FORGOTTEN_AFTER_SECONDS = 4  # a busy machine may let it be silent for more than one or two
strategy = parameter_server.make_parameter_server_strategy()
with strategy.scope():
    variable = tf.Variable(lambda: tf.zeros([50, 2**20]))  # 200 MiB
time.sleep(2 * parameter_server.FORGOTTEN_AFTER_SECONDS)  # idle, yet heard
assert float(variable[0, 0]) == 0
print("still known", flush=True)
time.sleep(600)
"""
RETURNS_MEMORY = {"TF_ENABLE_ONEDNN_OPTS": "0"}
"""oneDNN's allocator, which TensorFlow takes on some processors, keeps what is freed for the next variables."""

LEARNED = 0.9
"""Accuracy on the held-out digits; that of a guess is 0.1. Workers update in the order in which they finish, which is
another one each time: on a busy machine it was 0.9499 once. The weights of one worker are those of one device, which
`test_parity` makes sure of."""

ENDLESS = ("--epochs=100000", "--checkpoint-every-steps=40")


def test_it_learns_the_digits_even_when_a_worker_dies_and_the_coordinator_is_replaced(folder: Path) -> None:
    arguments = ["--epochs=8", "--checkpoint-every-steps=40"]
    with Job(folder, strategy=STRATEGY, roles=WITH_EVALUATOR, arguments=arguments, plain=True) as job:
        job.hold_at(40)
        job.start().wait_for_checkpoint(40)
        job["chief-0"].kill(signal.SIGTERM)
        job.hold_at(120)
        assert job["chief-0"].wait() == 42
        saved = int(job["chief-0"].wait_for(r"preempted: saved step (\d+) of 180")[1])
        assert (job.checkpoints / f"ckpt-{saved}.index").exists()

        chief = job.start("chief-0")["chief-0"]
        chief.wait_for(f"resumed: step {saved} of 180")
        job.wait_for_checkpoint(120)
        job["worker-1"].kill()
        job.let_go()
        assert chief.wait() == 0

        assert job["evaluator-0"].wait() == 0
        assert re.search(r"^step 1\d\d/180  held-out: accuracy 0\.9", job["evaluator-0"].log, re.M)
        for server in ("worker-0", "ps-0"):
            assert "serving 127.0.0.1:" in job[server].log
            job[server].kill(signal.SIGTERM)
            assert job[server].wait(SOON) == 143
    assert job.result["accuracy"] >= LEARNED
    assert job.result["steps"] >= 180
    assert re.search(r"^step \d+/180 \(\d+%\)  epoch \d+/8  loss \d", chief.log, re.M)
    assert (folder / "export" / "1" / "saved_model.pb").exists()


def test_if_all_are_asked_to_stop_at_once_the_servers_stay_until_the_coordinator_has_saved(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=ROLES, arguments=ENDLESS) as job:
        job.hold_at(40)
        chief = job.start()["chief-0"]
        job.wait_for_checkpoint(40)
        servers = ("worker-0", "worker-1", "ps-0")
        for name in (*servers, "chief-0"):
            job[name].kill(signal.SIGTERM)
            job[name].wait_for("SIGTERM: ")
        job.let_go()
        assert job.wait() == {"chief-0": 42, **dict.fromkeys(servers, 143)}
        assert job.newest_checkpoint == int(chief.wait_for(r"preempted: saved step (\d+) of")[1])
        assert {job[name].last_words for name in servers} == {
            f"{name.replace('-', ' ')}: asked to stop, and chief 0 has left" for name in servers
        }


def test_what_two_servers_save_is_read_by_servers_and_another_strategy(folder: Path) -> None:
    arguments = ["--epochs=8", "--checkpoint-every-steps=60"]
    with Job(folder, strategy=STRATEGY, roles={**ROLES, "ps": 2}, arguments=arguments) as job:
        job.hold_at(60)
        job.start().wait_for_checkpoint(60)
        job["chief-0"].kill(signal.SIGTERM)
        job.let_go()
        assert job["chief-0"].wait() == 42
        saved = job.newest_checkpoint
        chief = job.start("chief-0")["chief-0"]
        assert chief.wait() == 0
        chief.wait_for(f"resumed: step {saved} of 180")
    assert job.result["accuracy"] >= 0.95

    alone = ran(folder, arguments=["--epochs=9", "--checkpoint-every-steps=60"])
    assert re.search(r"resumed: step 1[89]\d of 203", alone["worker-0"].log)
    assert alone.result["accuracy"] >= 0.95


PENALISED = """
import tf_keras

def build():
    layers = tf_keras.layers
    outputs = layers.Dense(10, kernel_regularizer=tf_keras.regularizers.L2(1000.0))
    model = tf_keras.Sequential([layers.Input((8, 8, 1)), layers.Flatten(), outputs])
    model.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""


def test_the_loss_that_is_shown_includes_the_penalties_of_the_layers(folder: Path) -> None:
    # So slowly that the loss of the training stays that of the evaluation at its end.
    arguments = ["--model=penalised:build", "--dataset=digits", "--epochs=1", "--optimizer=sgd", "--learning-rate=1e-9"]
    roles, environ = {"chief": 1, "worker": 1, "ps": 1}, {"PYTHONPATH": f"{folder}:{PATH}"}
    files = {"penalised.py": PENALISED}
    job = ran(folder, strategy=STRATEGY, roles=roles, arguments=arguments, files=files, environ=environ)
    shown = float(re.findall(r"^step \d.*  loss (\d+\.\d+)", job["chief-0"].log, re.M)[-1])
    assert job.result["loss"] > 1000
    assert shown == pytest.approx(job.result["loss"], rel=1e-3)


def test_servers_forget_the_variables_of_a_coordinator_that_is_gone(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles={"chief": 1, "worker": 1, "ps": 1}) as job:
        job.start("worker-0", "ps-0", environ=RETURNS_MEMORY)["ps-0"].wait_for("serving")
        environ = {**inherited(), **job.environ("chief", 0)}
        with subprocess.Popen([sys.executable, "-c", COORDINATOR], env=environ, stdout=subprocess.PIPE) as coordinator:
            try:
                assert coordinator.stdout is not None
                assert coordinator.stdout.readline() == b"still known\n"
                full = job["ps-0"].own_memory
            finally:
                coordinator.kill()

        def forgotten() -> None:
            assert job["ps-0"].own_memory < full - 180 * 2**20

        eventually(forgotten)


def test_servers_on_one_cpu_train(folder: Path) -> None:
    """A pod under a static CPU policy, or a small node, has one: TensorFlow alone would have one thread there."""
    cpus = os.sched_getaffinity(0)
    with Job(folder, strategy=STRATEGY, roles=ROLES, arguments=["--epochs=1"], plain=True) as job:
        os.sched_setaffinity(0, {min(cpus)})
        try:
            job.start()
        finally:
            os.sched_setaffinity(0, cpus)
        assert job["chief-0"].wait() == 0


def test_a_lost_parameter_server_ends_the_coordinator_as_peer_lost(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=ROLES, arguments=ENDLESS) as job:
        job.start().wait_for_checkpoint(40)
        job["ps-0"].kill()
        assert job["chief-0"].wait(SOON) == 75
    assert job["chief-0"].last_words.startswith("peer lost: ps 0 not reachable")
    assert "Traceback" not in job["chief-0"].log


def test_silent_workers_end_the_coordinator_when_nothing_moves(folder: Path) -> None:
    arguments = ["--epochs=100000", "--checkpoint-every-steps=1000000", "--stall-timeout=5"]
    with Job(folder, strategy=STRATEGY, roles=ROLES, arguments=arguments, patient=True) as job:
        job.start()["chief-0"].wait_for(r"step \d+/")
        with stopped(job["worker-0"]), stopped(job["worker-1"]):
            (folder / "stalls").touch()
            endings.check(job, "workers_that_are_silent")


def test_silent_workers_end_the_coordinator_even_where_tensorflow_blocks_all_of_python(folder: Path) -> None:
    with Job(folder, strategy=STRATEGY, roles=ROLES, arguments=[*ENDLESS, "--stall-timeout=30"]) as job:
        # While it saves: TensorFlow then sends functions to the workers, and holds the interpreter's lock.
        job.start("worker-0", "worker-1", "ps-0")
        job.program = launched_once()
        job.start("chief-0").wait_for_checkpoint(40)
        with stopped(job["worker-0"]), stopped(job["worker-1"]):
            assert job["chief-0"].wait(SOON) == 75


@pytest.mark.parametrize(
    ("error", "printed"),
    [(tf.errors.UnavailableError(None, None, "gone"), 0), (ValueError(), 1)],
    ids=["lost", "other"],
)
def test_only_the_error_of_a_lost_task_is_not_printed_when_its_executor_is_forgotten(
    error: Exception, printed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failed(executor.Executor):
        def __init__(self) -> None:
            pass

        def wait(self) -> None:
            raise error

    seen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: seen.append(problem.exc_value))
    compat.forget_executors_in_silence()
    Failed()
    assert seen == [error] * printed


def test_workers_of_several_gpus_are_refused_in_one_line() -> None:
    run: Any = None
    line = (
        r"^strategy ParameterServer: each worker has 2 GPUs, and takes its steps on one; give accelerator.count 1 and "
        r"more workers$"
    )
    with pytest.raises(UsageError, match=line):
        # As TensorFlow counts the GPUs of each worker.
        parameter_server.train(run, SimpleNamespace(num_replicas_in_sync=2))


def test_workers_of_different_numbers_of_gpus_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def strategy(_: object) -> None:
        raise ValueError("Mismatched number of GPUs per worker")

    monkeypatch.setattr(tf.distribute, "ParameterServerStrategy", strategy)
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TFConfigClusterResolver", lambda: None)
    monkeypatch.setattr(compat, "forget_coordinator_after", lambda _: None)
    line = r"^strategy ParameterServer: the workers have different numbers of GPUs; give each accelerator.count 1$"
    with pytest.raises(UsageError, match=line):
        parameter_server.make_parameter_server_strategy()
