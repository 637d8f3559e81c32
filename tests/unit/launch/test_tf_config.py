"""TF_CONFIG is parsed once: the launcher and the trainer accept and refuse the same values."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dtj_launch import tf_config
from dtj_launch.errors import UsageError
from dtj_launch.topology import topology_of
from dtj_trainer.config import cluster
from dtj_trainer.errors import UsageError as TrainerUsageError

SOURCE = Path(tf_config.__file__).parents[1]
TWO = {"worker": ["a:1", "b:2"]}


def environ_of(listed: Any = TWO, *, role: Any = "worker", index: Any = 0, **variables: str) -> dict[str, str]:
    """An environment with this TF_CONFIG."""
    return {"TF_CONFIG": json.dumps({"cluster": listed, "task": {"type": role, "index": index}}), **variables}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TF_CONFIG": "{"}, "TF_CONFIG={: not JSON"),
        ({"TF_CONFIG": "[]"}, "TF_CONFIG=[]: not a JSON object"),
        (environ_of([]), "TF_CONFIG: cluster is [], not an object"),
        ({"TF_CONFIG": '{"task": 1}'}, "TF_CONFIG: task is 1, not an object"),
        (environ_of({"worker": "a:1"}), "TF_CONFIG: cluster.worker is a:1, not a list"),
        *(
            (environ_of({"worker": ["a:1", text]}), f"TF_CONFIG: cluster.worker[1] is {text}, not host:port")
            for text in ("a:0", "a:", ":1", "nowhere")
        ),
        (environ_of({"worker": ["a:\u00b2"]}), "TF_CONFIG: cluster.worker[0] is a:\u00b2, not host:port"),
        (environ_of(index=2), "TF_CONFIG: task is worker 2, but cluster lists no such task"),
        (environ_of(index=-1), "task index -1: not a whole number"),
        (environ_of(index=0.5), "task index 0.5: not a whole number"),
        (environ_of(role=1), "TF_CONFIG: task.type is 1, not a name"),
        (environ_of(index=0, DTJ_INDEX="1"), "DTJ_INDEX=1: TF_CONFIG says task.index 0; unset one of the two"),
        (environ_of(DTJ_ROLE="ps"), "DTJ_ROLE=ps: TF_CONFIG says task.type worker; unset one of the two"),
    ],
)
def test_the_launcher_and_the_trainer_refuse_the_same_values(environ: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as of_launcher:
        topology_of(environ)
    with pytest.raises(TrainerUsageError) as of_trainer:
        cluster.from_environment(environ)
    assert str(of_launcher.value) == str(of_trainer.value)
    assert str(of_launcher.value).startswith(message)


@pytest.mark.parametrize(
    ("environ", "task"),
    [
        ({}, ("worker", 0)),
        ({"DTJ_ROLE": "evaluator", "DTJ_INDEX": "0"}, ("evaluator", 0)),
        (environ_of(index="1"), ("worker", 1)),
        (environ_of(role="evaluator"), ("evaluator", 0)),
        ({"TF_CONFIG": json.dumps({"cluster": TWO}), "DTJ_INDEX": "1"}, ("worker", 1)),
    ],
)
def test_the_launcher_and_the_trainer_find_the_same_task(environ: dict[str, str], task: tuple[str, int]) -> None:
    here = cluster.from_environment(environ).task
    assert (here.role, here.index) == task
    assert topology_of(environ).name == f"{task[0]} {task[1]}"


@pytest.mark.parametrize(
    ("listed", "strategy"),
    [
        ({"chief": ["c:1"], "worker": ["a:1"], "ps": ["p:1"]}, "ParameterServer"),
        (TWO, "MultiWorkerMirrored"),
        ({"chief": ["c:1"], "worker": ["a:1"]}, "MultiWorkerMirrored"),
        ({"worker": ["a:1"]}, None),
        ({}, None),
    ],
)
def test_the_likely_strategy_follows_from_the_roles(listed: dict[str, list[str]], strategy: str | None) -> None:
    assert tf_config.likely_strategy(tf_config.parse(environ_of(listed, role="chief"))) == strategy


def test_an_ipv6_address_is_given_in_brackets() -> None:
    assert tf_config.parse(environ_of({"worker": ["[fd00::1]:2222"]})).cluster == {"worker": (("fd00::1", 2222),)}


COUNTED = {
    "DTJ_CLUSTER_COUNTS": '{"chief":1,"worker":9999}',
    "DTJ_CLUSTER_ADDRESS": "{role}-{index}.digits.default.svc:2222",
    "TF_CONFIG": '{"cluster":"too long for one variable","task":{"type":"worker","index":9998}}',
}


def test_a_cluster_that_is_given_by_numbers_is_the_one_with_all_addresses() -> None:
    config = tf_config.parse(COUNTED)
    assert (config.role, config.index) == ("worker", 9998)
    assert {role: len(listed) for role, listed in config.cluster.items()} == {"chief": 1, "worker": 9999}
    assert config.cluster["worker"][9998] == ("worker-9998.digits.default.svc", 2222)
    environ = dict(COUNTED)
    tf_config.write_out(environ)
    assert environ.keys() == {"TF_CONFIG"}
    assert tf_config.parse(environ) == config


def test_an_environment_with_the_whole_cluster_stays_as_it_is() -> None:
    environ = environ_of()
    tf_config.write_out(environ)
    assert environ == environ_of()


@pytest.mark.parametrize(
    ("counts", "pattern"),
    [
        ("{", "{role}-{index}:1"),
        ("[]", "{role}-{index}:1"),
        ('{"worker": "two"}', "{role}-{index}:1"),
        ('{"worker": null}', "{role}-{index}:1"),
        ('{"worker": 2}', "{name}:1"),
        ('{"worker": 2}', "{0}:1"),
    ],
)
def test_numbers_that_cannot_be_meant_are_refused_in_one_line(counts: str, pattern: str) -> None:
    with pytest.raises(tf_config.TfConfigError, match="leave both to the operator, or unset both") as error:
        tf_config.parse({"DTJ_CLUSTER_COUNTS": counts, "DTJ_CLUSTER_ADDRESS": pattern})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("folder", ["dtj_launch", "dtj-launch"])
def test_a_program_that_the_launcher_starts_finds_all_of_tf_config_whatever_its_folder_is_called(
    tmp_path: Path, folder: str
) -> None:
    shutil.copytree(SOURCE / "dtj_launch", tmp_path / folder)
    program = "import os, json; c = json.loads(os.environ['TF_CONFIG']); print(len(c['cluster']['worker']), c['task'])"
    command = [sys.executable, str(tmp_path / folder), "--", sys.executable, "-c", program]
    environ = {**os.environ, **COUNTED, "DTJ_STRATEGY": "Custom", "PYTHONPATH": ""}
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "9999 {'type': 'worker', 'index': 9998}\n"), ended.stderr
