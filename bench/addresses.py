"""Addresses in each pod or in one ConfigMap of the job: what creating the pods costs, and how large they are.

PYTHONPATH=operator:tests:trainer-image python bench/addresses.py

The same bare loop creates the pods of jobs of several sizes, with the addresses inline and by reference; with them, the
ConfigMaps. `Platform.inline_addresses` is chosen by it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

import common
import figures
from builders import manifest, stored
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.core.manifests.pod import PodRenderer
from dtj.core.manifests.tf_config import Cluster
from dtj.core.platform import Platform
from dtj.core.replicas import replicas
from testbed import ControlPlane

SIZES = (4, 16, 28, 64, 500)
PODS = 500
INLINE, BY_REFERENCE = Platform(inline_addresses=None), Platform(inline_addresses=0)


def main() -> None:
    rounds = figures.parser(__doc__, rounds=(5, "how often each is measured")).parse_args().rounds
    figures.print_machine()
    with common.control_plane() as (plane, _):
        for workers in SIZES:
            _compare(plane, workers, rounds)


def _compare(plane: ControlPlane, workers: int, rounds: int) -> None:
    """Measure one size in turns, and print how the two compare."""
    jobs = [_job(f"job-{number}", workers) for number in range(max(1, PODS // workers))]
    ratios = []
    for number in range(rounds):
        order = (INLINE, BY_REFERENCE) if number % 2 == 0 else (BY_REFERENCE, INLINE)
        took = {id(platform): _create(plane, jobs, platform) for platform in order}
        ratios.append(took[id(BY_REFERENCE)] / took[id(INLINE)])
    inline, by_reference = (_bytes(jobs[0], platform) for platform in (INLINE, BY_REFERENCE))
    title = f"{len(jobs)} jobs of {workers}"
    figures.print_figure(
        f"{title}: time by reference to inline", f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    figures.print_figure(f"{title}: bytes of a pod", f"{inline:,} inline, {by_reference:,} by reference")


def _create(plane: ControlPlane, jobs: list[Job], platform: Platform) -> float:
    """Seconds for all ConfigMaps and pods of these jobs."""
    owner = common.new_owner(plane)
    namespace = common.namespace_of(owner)
    config_maps = [_cluster(job, platform).config_map() for job in jobs if _cluster(job, platform).config_map_name]
    pods = [pod for job in jobs for pod in _pods(job, platform)]
    for body in (*config_maps, *pods):
        common.give_to(body, owner)
    began = datetime.now(UTC)
    common.create(plane, f"/api/v1/namespaces/{namespace}/configmaps", config_maps)
    common.create(plane, common.pods_path(namespace), pods)
    seconds = (datetime.now(UTC) - began).total_seconds()
    common.remove(plane, namespace)
    return seconds


def _job(name: str, workers: int) -> Job:
    return replace(Job.from_object(stored(manifest(name, roles={"worker": workers}))), uid=f"uid-of-{name}")


def _cluster(job: Job, platform: Platform) -> Cluster:
    assert job.spec is not None
    return Cluster(job, job.spec, platform)


def _pods(job: Job, platform: Platform) -> list[JsonObject]:
    assert job.spec is not None
    return [*map(PodRenderer(job, job.spec, platform).render, replicas(job.spec))]


def _bytes(job: Job, platform: Platform) -> int:
    """The size of one pod's manifest, as the API server gets it."""
    return len(json.dumps(_pods(job, platform)[-1], separators=(",", ":")))


if __name__ == "__main__":
    main()
