"""TF_CONFIG comes to the pods in three ways, by the length of the list of addresses; all mean the same."""

from __future__ import annotations

import json
import subprocess
from itertools import accumulate
from typing import Any

import pytest

from builders import job, manifest, spec_of, stored
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Env
from dtj.api.spec import Role
from dtj.core.manifests.pod import PodRenderer
from dtj.core.manifests.tf_config import Cluster, Delivery
from dtj.core.platform import Platform
from dtj.core.replicas import Replica
from dtj_launch import tf_config
from support.pod_environment import environment_of


def cluster(owner: Job) -> Cluster:
    return Cluster(owner, spec_of(owner), Platform())


def pod(owner: Job, replica: Replica) -> JsonObject:
    return PodRenderer(owner, spec_of(owner), Platform()).render(replica)


def seen(owner: Job, replica: Replica) -> Any:
    """TF_CONFIG as a program in the pod sees it, which the launcher has started."""
    made = cluster(owner)
    config_maps = {made.config_map_name: made.config_map()} if made.config_map_name else {}
    environ = environment_of(pod(owner, replica), config_maps)
    tf_config.write_out(environ)
    return json.loads(environ[Env.TF_CONFIG])


@pytest.mark.parametrize(
    ("workers", "delivery"), [(4, Delivery.INLINE), (60, Delivery.CONFIG_MAP), (9_000, Delivery.DERIVED)]
)
def test_each_way_brings_the_same_cluster_and_the_own_task(workers: int, delivery: Delivery) -> None:
    owner = job(strategy="ParameterServer", roles={"chief": 1, "worker": workers, "ps": 2})
    assert cluster(owner).delivery is delivery
    worker = Replica(Role.WORKER, workers - 1)
    config = seen(owner, worker)
    assert config["cluster"] == cluster(owner).addresses
    assert len(config["cluster"]["worker"]) == workers
    assert config["cluster"]["worker"][-1] == f"worker-{workers - 1}.digits.default.svc:2222"
    assert config["task"] == {"type": "worker", "index": workers - 1}
    assert seen(owner, Replica(Role.PS, 1)) == {**config, "task": {"type": "ps", "index": 1}}


@pytest.mark.parametrize("workers", [1, 10, 28, 100, 1_000, 10_000])
def test_a_pod_has_at_most_four_kilobytes_besides_the_template_whatever_the_number_of_replicas(workers: int) -> None:
    template: JsonObject = {"spec": {"containers": [{"name": "trainer", "image": "x"}]}}
    body = manifest("j" * 45, roles={"worker": workers}, template=template)
    owner = Job.from_object(stored(body, namespace="n" * 63))
    made = pod(owner, Replica(Role.WORKER, workers - 1))
    assert len(json.dumps(made, separators=(",", ":"))) <= 4096


def test_addresses_are_inline_up_to_the_limit_and_one_more_makes_a_config_map() -> None:
    lengths = {count: cluster(job(roles={"worker": count})) for count in range(20, 40)}
    inline = [count for count, made in lengths.items() if made.delivery is Delivery.INLINE]
    assert inline == [*accumulate(inline[1:], lambda count, _: count + 1, initial=20)]
    text_of = json.dumps(lengths[inline[-1]].addresses, separators=(",", ":"))
    assert len(text_of) <= 1024 < len(text_of) + len(',"worker-30.digits.default.svc:2222"')


def test_what_fits_into_one_variable_is_started_by_linux_and_one_more_is_derived() -> None:
    counts = range(3_400, 3_700)
    fits = max(n for n in counts if cluster(job(roles={"worker": n})).delivery is Delivery.CONFIG_MAP)
    assert cluster(job(roles={"worker": fits + 1})).delivery is Delivery.DERIVED
    made = cluster(job(roles={"worker": fits}))
    environ = environment_of(pod(made.job, Replica(Role.WORKER, fits - 1)), {made.config_map_name: made.config_map()})
    assert len(environ[Env.TF_CONFIG]) == made.longest
    subprocess.run(["/bin/true"], env={"TF_CONFIG": environ[Env.TF_CONFIG]}, check=True)
    more = json.dumps(seen(job(roles={"worker": fits + 1}), Replica(Role.WORKER, fits)), separators=(",", ":"))
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env={"TF_CONFIG": more}, check=True)


def test_a_variable_of_the_user_that_refers_to_tf_config_gets_the_whole_of_it() -> None:
    container = {"name": "trainer", "image": "x", "env": [{"name": "COPY", "value": "x$(TF_CONFIG)x"}]}
    owner = job(roles={"worker": 60}, template={"spec": {"containers": [container]}})
    made = cluster(owner)
    environ = environment_of(pod(owner, Replica(Role.WORKER, 0)), {made.config_map_name: made.config_map()})
    assert environ["COPY"] == f"x{environ[Env.TF_CONFIG]}x"
    assert json.loads(environ[Env.TF_CONFIG])["cluster"] == made.addresses


def test_the_name_of_the_config_map_changes_with_the_job_and_with_the_number_of_replicas() -> None:
    names = [
        cluster(job(roles={"worker": 60})).config_map_name,
        cluster(job(roles={"worker": 61})).config_map_name,
        cluster(Job.from_object(stored(manifest(roles={"worker": 60}), uid="another"))).config_map_name,
    ]
    assert len(set(names)) == 3
    assert all(name.startswith("digits-cluster-") for name in names)


def test_a_program_without_the_launcher_does_not_take_itself_for_one_that_trains_alone() -> None:
    environ = environment_of(pod(job(roles={"worker": 9_000}), Replica(Role.WORKER, 0)))
    assert "start the program with dtj-launch" in json.loads(environ[Env.TF_CONFIG])["cluster"]
