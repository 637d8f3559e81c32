"""Every TF_CONFIG that the planner makes is one that TensorFlow itself can read."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings

from builders import NOW, job, seen
from dtj.api.job import Job
from dtj.api.json import dig
from dtj.core.actions import CreatePod
from dtj.core.observed import TemplateVerdict
from dtj.core.planner import plan
from dtj.core.platform import Platform
from strategies import jobs
from support.played_tfjobs import tfjob, world_of
from support.pod_environment import environment_of
from trainer_environment import trainer_python
from world import World

RESOLVE = """
import json, os, sys
import tensorflow as tf
for line in sys.stdin:
    os.environ["TF_CONFIG"] = line
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster, task = resolver.cluster_spec(), (resolver.task_type, resolver.task_id)
    address = cluster.task_address(*task) if task[0] in cluster.jobs else ""
    print(json.dumps([cluster.as_dict(), *task, address]), flush=True)
"""
OUTSIDE = ("evaluator", "dispatcher", "data-worker")
"""Tasks that are in nobody's cluster."""


def resolved(configs: Sequence[str]) -> list[tuple[dict[str, object], str, int, str]]:
    """What TensorFlow's resolver reads of each: the cluster, the task and its address."""
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [trainer_python(), "-c", RESOLVE],
        input="\n".join(configs),
        env=quiet,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [tuple(json.loads(line)) for line in done.stdout.splitlines()]
    assert len(found) == len(configs)
    return found


def tf_configs(job: Job) -> list[str]:
    observed = seen(job, verdict=TemplateVerdict(job.generation, NOW))
    found = []
    for action in plan(observed, NOW):
        variables = dig(action.render(), "spec", "containers", 0, "env") if isinstance(action, CreatePod) else None
        for variable in variables if isinstance(variables, list) else []:
            if dig(variable, "name") == "TF_CONFIG":
                found.append(str(dig(variable, "value")))
    return found


def test_tensorflows_own_resolver_reads_each_generated_config() -> None:
    configs: list[str] = []

    @given(jobs())
    @settings(max_examples=150, database=None, suppress_health_check=list(HealthCheck))
    def collect(job: Job) -> None:
        configs.extend(tf_configs(job))

    collect()
    assert len(configs) > 150
    for config, (cluster, task_type, task_id, address) in zip(map(json.loads, configs), resolved(configs), strict=True):
        assert cluster == config["cluster"]
        assert (task_type, task_id) == (config["task"]["type"], config["task"]["index"])
        assert address.startswith(f"{task_type}-{task_id}.") != (task_type in OUTSIDE)


TFJOBS = (
    ({"Worker": 3}, False),
    ({"Chief": 1, "Worker": 2, "PS": 2, "Evaluator": 1}, False),
    ({"Master": 1, "Worker": 2, "PS": 2}, False),
    ({"Worker": 2, "PS": 2, "Evaluator": 1}, False),
    ({"Worker": 3, "PS": 3}, True),
    ({"Chief": 1, "Worker": 2, "PS": 2, "Evaluator": 1}, True),
    ({"Master": 1, "Worker": 2, "PS": 2}, True),
)
"""Replicas by role, and whether workers come and go."""


def test_it_finds_the_task_of_each_replica_of_a_tfjob_and_of_one_whose_list_is_in_a_config_map() -> None:
    worlds = [world_of(tfjob({**roles}, enableDynamicWorker=dynamic)).settle() for roles, dynamic in TFJOBS]
    parted = job(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 2})
    worlds.append(World(parted, platform=Platform(inline_addresses=0)).settle())
    pods = [(pod, world.config_maps) for world in worlds for pod in world.manifests.values()]
    found = resolved([environment_of(pod, maps)["TF_CONFIG"] for pod, maps in pods])
    assert len(found) == sum(sum(roles.values()) for roles, _ in TFJOBS) + 5
    for (pod, _), (_, task_type, task_id, address) in zip(pods, found, strict=True):
        host = str(dig(pod, "spec", "hostname"))
        assert host.endswith(f"{task_type}-{task_id}")
        assert address.startswith(f"{host}.") != (task_type in OUTSIDE)
