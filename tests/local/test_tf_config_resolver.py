"""Every TF_CONFIG that the planner makes is one that TensorFlow itself can read."""

from __future__ import annotations

import json
import os
import subprocess

from hypothesis import HealthCheck, given, settings

from builders import NOW, seen
from dtj.api.job import Job
from dtj.api.json import dig
from dtj.core.actions import CreatePod
from dtj.core.observed import TemplateVerdict
from dtj.core.planner import plan
from strategies import jobs
from trainer_environment import trainer_python

RESOLVE = """
import json, os, sys
import tensorflow as tf
for line in sys.stdin:
    os.environ["TF_CONFIG"] = line
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    print(json.dumps([resolver.cluster_spec().as_dict(), resolver.task_type, resolver.task_id]), flush=True)
"""


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
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [trainer_python(), "-c", RESOLVE],
        input="\n".join(configs),
        env=quiet,
        capture_output=True,
        text=True,
        check=True,
    )
    resolved = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(resolved) == len(configs) > 150
    for config, (cluster, task_type, task_id) in zip(map(json.loads, configs), resolved, strict=True):
        assert cluster == config["cluster"]
        assert (task_type, task_id) == (config["task"]["type"], config["task"]["index"])
