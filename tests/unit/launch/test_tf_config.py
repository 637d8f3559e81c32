"""TF_CONFIG is parsed once: the launcher and the trainer accept and refuse the same values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dtj_launch import tf_config
from dtj_launch.errors import UsageError
from dtj_launch.topology import topology_of
from dtj_trainer.config import cluster
from dtj_trainer.errors import UsageError as TrainerUsageError

pytestmark = pytest.mark.unit

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
        (environ_of({"worker": "a:1"}), "TF_CONFIG: cluster.worker is a:1, not a list"),
        (environ_of({"worker": ["a:0"]}), "TF_CONFIG: cluster.worker[0] is a:0, not host:port"),
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
