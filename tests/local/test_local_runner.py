"""``dtj run`` with real TensorFlow: what the examples promise on one machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from support.local_runs import PROC, LocalCommand, marked_processes
from support.waiting import eventually, eventually_true
from trainer_environment import ROOT, trainer_python

EXAMPLES = ROOT / "examples"


class CommandLine(LocalCommand):
    """With examples; output and errors are one."""

    errors = subprocess.STDOUT

    def run(self, *arguments: object) -> tuple[int, str]:
        """Exit code and output."""
        started = self.start(*arguments)
        output, _ = started.communicate()
        return started.returncode, output

    def example(self, name: str, **changes: object) -> Path:
        """An example with other arguments or other fields of its spec."""
        body = yaml.safe_load((EXAMPLES / name).read_text())
        arguments = changes.pop("args", None)
        if arguments is not None:
            body["spec"]["template"]["spec"]["containers"][0]["args"] = arguments
        body["spec"].update(changes)
        file = self.folder / name
        file.write_text(yaml.safe_dump(body))
        return file

    def newest_step(self, job: str, folder: str = "checkpoint") -> int:
        """The step of the newest checkpoint in this folder of the run; 0 where there is none."""
        return max((int(path.stem[5:]) for path in (self.latest(job) / folder).glob("ckpt-*.index")), default=0)

    def log(self, job: str, replica: str) -> str:
        """What a replica has said so far."""
        file = self.latest(job) / "logs" / f"{replica}.log"
        return file.read_text() if file.exists() else ""

    def scale(self, job: str, workers: int) -> tuple[int, str]:
        """Exit code and output of ``dtj scale --run``."""
        command = [sys.executable, "-m", "dtj.cli.main", "scale", f"--run={job}", f"--replicas={workers}"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


def in_state(output: str, state: str) -> set[str]:
    """The replicas that some line shows in this state; which replicas share a line depends on timing."""
    lines = re.findall(rf"^ *\w+s  (.+): {state}$", output, re.MULTILINE)
    return {name for line in lines for name in line.split(", ")}


def processes(mark: str, replica: str) -> tuple[int, int]:
    """Launcher and trainer of a replica, such as chief-0, without the shim that watches them."""
    role, _, index = replica.partition("-")
    wanted = {f"DTJ_ROLE={role}".encode(), f"DTJ_INDEX={index}".encode()}
    found = {}
    for pid in marked_processes(mark):
        with suppress(OSError):  # it has just ended
            variables = set((PROC / str(pid) / "environ").read_bytes().split(b"\0"))
            if wanted <= variables and b"shim.py" not in (PROC / str(pid) / "cmdline").read_bytes():
                found[pid] = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    ((trainer, launcher),) = ((pid, parent) for pid, parent in found.items() if parent in found)
    return launcher, trainer


@pytest.fixture
def dtj(tmp_path: Path) -> Iterator[CommandLine]:
    with CommandLine(tmp_path, trainer_python()) as command_line:
        yield command_line


def metrics_format() -> str:
    """The filter for the metric in the Experiment of docs/tools.md."""
    found = re.search(r"metricsFormat: \['(.*)'\]", (ROOT / "docs" / "tools.md").read_text())
    assert found is not None
    return found[1]


def test_two_workers_learn_real_digits_and_leave_a_model_checkpoints_and_curves(dtj: CommandLine) -> None:
    code, output = dtj.run(EXAMPLES / "digits.yaml")
    assert code == 0, output
    run = dtj.latest("digits")
    result = json.loads((run / "tensorboard" / "result.json").read_text())
    assert result["accuracy"] >= 0.95
    assert f"accuracy     {100 * result['accuracy']:.2f} % on held-out examples" in output
    assert (run / "export" / "1" / "saved_model.pb").exists()
    assert re.search(r"^  model        \S+/export/1  \(SavedModel; [\d.]+[kM] bytes\)$", output, re.MULTILINE), output
    assert list((run / "checkpoint").glob("ckpt-225.index"))
    assert list((run / "tensorboard" / "train").glob("events.*"))
    assert re.search(r"step \d+/225 \(\d+%\)  .*  loss \d", output)
    found = re.findall(metrics_format(), (run / "logs" / "worker-0.log").read_text())
    assert found == [("accuracy", f"{result['accuracy']:.4f}")], "what Katib would read, and nothing else"
    assert marked_processes(dtj.mark) == [], "and no process"


def test_what_no_restart_mends_fails_at_the_first_and_what_may_pass_is_started_again(dtj: CommandLine) -> None:
    one = {"strategy": "OneDevice", "replicaSpecs": {"worker": {"replicas": 1}}, "runPolicy": {"backoffLimit": 1}}
    stays = ["--task=image-classification", "--dataset=digits", "--checkpoint-dir=/dev/null/below"]
    code, output = dtj.run(dtj.example("digits.yaml", args=stays, **one))
    assert code == 2, output
    line = "cannot be written (Not a directory); mount a writable volume there"
    assert line in output
    assert dtj.log("digits", "worker-0").count(line) == 1
    code, output = dtj.run(dtj.example("digits.yaml", args=["--script=absent.py"], **one))
    assert code == 2, output
    assert dtj.log("digits", "worker-0").count("no such file") == 2


def test_a_parameter_server_job_ends_its_servers_when_the_chief_has_completed(dtj: CommandLine) -> None:
    code, output = dtj.run(EXAMPLES / "digits-parameter-server.yaml")
    assert code == 0, output
    result = json.loads((dtj.latest("digits-ps") / "tensorboard" / "result.json").read_text())
    assert result["accuracy"] >= 0.9
    assert in_state(output, "Succeeded") == {"chief-0"}
    assert in_state(output, "Stopped") == {"worker-0", "worker-1", "ps-0"}, output
    assert marked_processes(dtj.mark) == []


def test_a_pipeline_ends_its_stages_when_the_leader_has_completed(dtj: CommandLine) -> None:
    code, output = dtj.run(EXAMPLES / "digits-pipeline.yaml")
    assert code == 0, output
    result = json.loads((dtj.latest("digits-pipeline") / "tensorboard" / "result.json").read_text())
    assert result["accuracy"] >= 0.9
    assert in_state(output, "Succeeded") == {"worker-0"}
    assert in_state(output, "Stopped") == {"worker-1"}, output
    assert marked_processes(dtj.mark) == []


def test_a_chief_that_is_killed_comes_back_alone_to_parameter_servers_that_live_on(dtj: CommandLine) -> None:
    arguments = ["--task=image-classification", "--dataset=digits", "--epochs=12", "--checkpoint-every-steps=20"]
    manifest = dtj.example("digits-parameter-server.yaml", args=arguments, runPolicy={"backoffLimit": 1})
    running = dtj.start(manifest)
    eventually_true(lambda: dtj.newest_step("digits-ps") > 0)
    launcher, _ = processes(dtj.mark, "chief-0")
    os.kill(launcher, signal.SIGKILL)
    output, _ = running.communicate()
    assert running.returncode == 0, output
    logs = dtj.latest("digits-ps") / "logs"
    assert re.search(r"resumed: step \d+ of 270", (logs / "chief-0.log").read_text())
    for server in ("worker-0", "worker-1", "ps-0"):
        assert (logs / f"{server}.log").read_text().count(": serving") == 1, "it went on living"
    assert "attempt 2" not in (logs / "dtj.log").read_text()
    result = json.loads((dtj.latest("digits-ps") / "tensorboard" / "result.json").read_text())
    assert result["accuracy"] >= 0.9
    assert marked_processes(dtj.mark) == []


def test_a_worker_whose_process_is_killed_trains_on_in_its_place_with_the_others(dtj: CommandLine) -> None:
    arguments = ["--task=image-classification", "--dataset=digits", "--epochs=25", "--checkpoint-every-steps=20"]
    running = dtj.start(dtj.example("digits.yaml", args=arguments))
    eventually_true(lambda: dtj.newest_step("digits") > 0)
    before = {name: processes(dtj.mark, name) for name in ("worker-0", "worker-1")}
    os.kill(before["worker-1"][1], signal.SIGKILL)
    logs = dtj.latest("digits") / "logs"
    eventually_true(lambda: "resumed: step" in (logs / "worker-0.log").read_text())
    after = {name: processes(dtj.mark, name) for name in ("worker-0", "worker-1")}
    assert [launcher for launcher, _ in after.values()] == [launcher for launcher, _ in before.values()]
    output, _ = running.communicate()
    assert running.returncode == 0, output
    assert "attempt 2" not in (logs / "dtj.log").read_text()
    assert marked_processes(dtj.mark) == []


def test_checkpoints_in_memory_outlive_the_processes_of_all_workers_but_one(dtj: CommandLine) -> None:
    file = dtj.example(
        "digits.yaml",
        args=["--task=image-classification", "--dataset=digits", "--epochs=60"],
        checkpoint={"inMemory": {"everySteps": 10}},
        replicaSpecs={"worker": {"replicas": 3}},
        runPolicy={"restartScope": "Pod"},
    )
    running = dtj.start(file)
    names = ("worker-0", "worker-1", "worker-2")

    def newest() -> int:
        steps = [dtj.newest_step("digits", f"memory/{name}") for name in names]
        assert min(steps) > 0
        return max(steps)

    eventually(newest)
    trainers = [processes(dtj.mark, name)[1] for name in names]
    for trainer in trainers[:2]:
        os.kill(trainer, signal.SIGSTOP)
    step = newest()
    for trainer in trainers[:2]:
        os.kill(trainer, signal.SIGKILL)

    def resumed() -> int:
        words = dtj.log("digits", "worker-0")
        match = re.search(r"^resumed: step (\d+) of \d+ from \S+/memory/worker-0/ckpt-", words, re.MULTILINE)
        assert match is not None
        return int(match[1])

    # A copy that was being written may have become whole.
    assert eventually(resumed) in (step, step + 10)
    output, _ = running.communicate()
    assert running.returncode == 0, output


SLOW = """
import time
import keras
import tensorflow as tf

def model():
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile(optimizer="sgd", loss="mse")
    return made

def points():
    def slowly(x):
        tf.py_function(lambda: time.sleep(0.002), [], [])
        return x, tf.reduce_sum(x)[None]
    whole = tf.data.Dataset.from_tensor_slices(tf.ones((320, 4))).map(slowly)
    return {"training": whole.take(256), "held_out": whole.skip(256)}
"""
"""A training that waits most of the time: what joins it needs the processor."""


def test_workers_join_and_leave_a_run_and_the_processes_of_the_others_stay(dtj: CommandLine) -> None:
    (dtj.folder / "slow.py").write_text(SLOW)
    arguments = ["--model=slow:model", "--data=slow:points", "--batch-size=32", "--steps-per-call=1", "--epochs=10000"]
    alone, spare = {"worker": {"replicas": 1}}, {"maxReplicas": 4, "spares": 1}
    running = dtj.start(dtj.example("digits-elastic.yaml", args=arguments, replicaSpecs=alone, elastic=spare))

    def trains_with(*workers: int) -> None:
        """The lines that say so, and a step after the last."""
        words = dtj.log("digits-elastic", "worker-0")
        assert re.findall(r"replicas (\d+) ", words) == [*map(str, workers)]
        assert re.search(r"^step \d+/\d+ ", words.rpartition("replicas ")[2], re.MULTILINE)

    eventually(lambda: trains_with(1))
    launcher, _ = processes(dtj.mark, "worker-0")
    refusal = "--replicas=9: spec.elastic of digits-elastic allows from 1 to 4\n"
    assert dtj.scale("digits-elastic", 9) == (2, refusal)
    assert dtj.scale("digits-elastic", 2) == (0, "digits-elastic scaled\n")
    eventually(lambda: trains_with(1, 2))
    assert dtj.scale("digits-elastic", 1) == (0, "digits-elastic scaled\n")
    eventually(lambda: trains_with(1, 2, 1))
    assert processes(dtj.mark, "worker-0")[0] == launcher
    running.send_signal(signal.SIGINT)
    running.communicate()
    words = dtj.log("digits-elastic", "worker-0")
    saved, resumed = (re.findall(rf"{said} step (\d+) of", words) for said in ("all tasks saved", "resumed:"))
    assert len(resumed) == 2
    assert resumed == saved[:2]
    refusal = f"{dtj.latest('digits-elastic')} does not run any more: start it again with dtj run\n"
    assert dtj.scale("digits-elastic", 2) == (2, refusal)


def test_workers_of_a_parameter_server_come_and_go_and_only_the_coordinator_starts_again(dtj: CommandLine) -> None:
    arguments = ["--task=image-classification", "--dataset=digits", "--epochs=100000", "--progress-every=0.2"]
    roles = {"chief": {}, "worker": {"replicas": 1}, "ps": {}}
    job = dtj.example("digits-parameter-server.yaml", args=arguments, replicaSpecs=roles, elastic={"maxReplicas": 2})
    running = dtj.start(job)

    def trains_with(*workers: int) -> None:
        """The lines that say so, and a step after the last."""
        words = dtj.log("digits-ps", "chief-0")
        assert re.findall(r"workers (\d+)  parameter servers 1", words) == [*map(str, workers)]
        assert re.search(r"^step \d+/\d+ ", words.rpartition("parameter servers ")[2], re.MULTILINE)

    eventually(lambda: trains_with(1))
    served = {replica: processes(dtj.mark, replica) for replica in ("worker-0", "ps-0")}
    launcher, _ = processes(dtj.mark, "chief-0")
    assert dtj.scale("digits-ps", 2) == (0, "digits-ps scaled\n")
    eventually(lambda: trains_with(1, 2))
    assert dtj.scale("digits-ps", 1) == (0, "digits-ps scaled\n")
    eventually(lambda: trains_with(1, 2, 1))
    assert {replica: processes(dtj.mark, replica) for replica in served} == served
    assert processes(dtj.mark, "chief-0")[0] == launcher
    running.send_signal(signal.SIGINT)
    running.communicate()
    words = dtj.log("digits-ps", "chief-0")
    saved, resumed = (re.findall(rf"{said} step (\d+) of", words) for said in ("preempted: saved", "resumed:"))
    assert len(resumed) == 2
    assert resumed == saved[:2]
    assert len(saved) == 3, "its servers stay at Ctrl-C until it has saved"


def test_an_evaluator_measures_the_checkpoints_of_the_others(dtj: CommandLine) -> None:
    arguments = ["--task=image-classification", "--dataset=digits", "--epochs=5", "--checkpoint-every-steps=10"]
    code, output = dtj.run(dtj.example("digits-evaluator.yaml", args=arguments))
    assert code == 0, output
    assert "held-out: accuracy" in (dtj.latest("digits-evaluated") / "logs" / "evaluator-0.log").read_text()


def test_two_workers_train_on_what_a_data_service_prepares(dtj: CommandLine) -> None:
    arguments = ["--task=image-classification", "--dataset=digits", "--epochs=3"]
    code, output = dtj.run(dtj.example("digits-data-service.yaml", args=arguments))
    assert code == 0, output
    logs = dtj.latest("digits-data-service") / "logs"
    for name in ("dispatcher-0", "data-worker-0", "data-worker-1"):
        assert "of the tf.data service" in (logs / f"{name}.log").read_text()
    served = dtj.latest("digits-data-service") / "checkpoint" / "data-service" / "datasets"
    assert list(served.iterdir()), "the workers had their examples from it"
    assert marked_processes(dtj.mark) == []


def test_a_run_that_was_stopped_goes_on_where_it_was(dtj: CommandLine) -> None:
    long = dtj.example("digits.yaml", args=["--epochs=400"])
    running = dtj.start(long)
    eventually_true(lambda: len(re.findall(r"step \d+/\d+", dtj.log("digits", "worker-0"))) >= 2)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate()
    assert running.returncode == 130, output
    saved = dtj.newest_step("digits")
    assert saved > 0
    epochs = saved // 22 + 2
    code, output = dtj.run("--resume", dtj.example("digits.yaml", args=[f"--epochs={epochs}"]))
    assert code == 0, output
    assert f"resumed: step {saved} of" in (dtj.latest("digits") / "logs" / "worker-0.log").read_text()
