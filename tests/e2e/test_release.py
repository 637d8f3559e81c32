"""A release in a cluster: what `make release` makes is installed, and replaces an older state and is replaced by it."""

from __future__ import annotations

from pathlib import Path

from dtj.api.json import JsonObject, dig, objects
from support import older_release
from support.cluster_jobs import ClusterJobs, example, training
from support.installation import Installation
from testbed import Cluster
from testbed.processes import wait_until

NATIVE: JsonObject = {"gangSchedulers": ["Native"]}
"""The other gang schedulers are not installed. All other values are the chart's."""

ENDING = """\
import os
import time
import dtj_trainer

with dtj_trainer.session() as s:
    s.checkpoint()
    for _ in s.steps(1_000_000):
        time.sleep(0.05)
        s.report()
        if os.path.exists("end"):
            break
"""
"""A script that goes on until the working directory has a file."""


def status_fields(cluster: Cluster) -> set[str]:
    """The fields of a job's status that the CRD of the cluster has."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/distributedtrainingjobs.training.dtj.dev"
    (version,) = cluster.api.request("GET", path)["spec"]["versions"]
    return set(version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"])


def await_progress(jobs: ClusterJobs, name: str) -> None:
    """Wait until the operator reports a step that comes after the last one."""

    def step() -> int:
        progress: dict[str, int] = jobs.job(name)["status"].get("progress", {})
        return progress.get("step", 0)

    before = step()
    wait_until(lambda: step() > before, what=f"progress of {name} after step {before}")


def test_the_example_of_the_readme_trains_under_a_released_chart_with_its_default_images(
    vacated: Installation, jobs: ClusterJobs, released_chart: Path
) -> None:
    vacated.install(released_chart, NATIVE)
    named = {pod["spec"]["containers"][0]["image"].partition("@")[0] for pod in vacated.pods().values()}
    assert named == {"registry.example/dtj-operator"}
    jobs.submit(example("digits"))
    jobs.await_condition("digits", "Complete")


def test_a_job_trains_on_through_an_upgrade_a_rollback_and_while_nothing_is_installed(
    vacated: Installation,
    jobs: ClusterJobs,
    released_chart: Path,
    older_operator_image: str,
    trainer_image: str,
    tmp_path: Path,
) -> None:
    repository, tag = older_operator_image.rsplit(":", 1)
    vacated.install(older_release.chart(), {"image": {"repository": repository, "tag": tag}, **NATIVE})
    assert older_release.NEWER_FIELD not in status_fields(jobs.cluster)
    (tmp_path / "ending.py").write_text(ENDING)
    body = training("carried-on", image=trainer_image, strategy="OneDevice", roles={"worker": 1})
    (container,) = objects(dig(body, "spec", "template", "spec", "containers"))
    container["args"] = ["--script=ending.py"]
    jobs.submit_with_code(body, tmp_path)
    jobs.await_condition("carried-on", "PodsReady")
    before = jobs.uids()

    vacated.upgrade(released_chart, NATIVE)
    wait_until(lambda: older_release.NEWER_FIELD in jobs.job("carried-on")["status"], what="the newer status")
    await_progress(jobs, "carried-on")

    vacated.rollback()
    assert older_release.NEWER_FIELD not in status_fields(jobs.cluster)
    await_progress(jobs, "carried-on")

    vacated.uninstall()
    assert jobs.uids() == before
    vacated.install(released_chart, NATIVE)
    jobs.kubectl("exec", "carried-on-worker-0", "--", "touch", "end")
    jobs.await_condition("carried-on", "Complete")
    assert jobs.uids() == before
    status = jobs.job("carried-on")["status"]
    assert (status["attempt"], status["restarts"]["total"]) == (1, 0)
