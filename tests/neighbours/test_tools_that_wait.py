"""What kstatus (Helm, Flux), Argo CD, Argo Workflows, Katib and Airflow make of a job at each point of its life."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from builders import manifest
from dtj.api.json import JsonObject, dig
from support.chart import Helm
from support.job_world import JobWorld
from support.lives import EXPECTED, points
from support.snippets import ROOT, blocks
from testbed import binaries

PAGE = ROOT / "docs" / "tools.md"

DONE = {
    "it is complete",
    "it is complete and its pods are deleted",
    "it was changed after its end",
    "it is being deleted",
}
FAILED = {"it has failed"}
OF_ARGO_CD = dict.fromkeys(EXPECTED, "Progressing") | {
    **dict.fromkeys(DONE, "Healthy"),
    **dict.fromkeys(FAILED, "Degraded"),
    "it is being suspended": "Suspended",
    "it is suspended": "Suspended",
    "it is invalid": "Degraded",
}
OF_WORKFLOWS = {
    point: "Succeeded" if point in DONE else "Failed" if point in FAILED else "Running" for point in EXPECTED
}


def documented(kind: str) -> JsonObject:
    """The object of this kind in docs/tools.md."""
    found = (body for block in blocks(PAGE) if block.language == "yaml" for body in _bodies(block.text))
    return next(body for body in found if body.get("kind") == kind)


def _bodies(text: str) -> list[JsonObject]:
    return [body for body in yaml.safe_load_all(text) if isinstance(body, dict)]


def made_of(waiters: Path, tool: str, *arguments: str) -> dict[str, str]:
    """The word of a tool for each point of a job's life: its status without the message."""
    objects = points()
    lines = "".join(json.dumps(each) + "\n" for each in objects.values())
    command = [str(waiters), tool, *arguments]
    answer = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    words = [line.partition("\t")[0] for line in answer.stdout.splitlines()]
    return dict(zip(objects, words, strict=True))


def test_kstatus_finds_a_job_in_progress_current_or_failed_as_a_person_would(waiters: Path) -> None:
    assert made_of(waiters, "kstatus") == EXPECTED


def test_the_health_script_of_argo_cd_knows_every_point(waiters: Path, tmp_path: Path) -> None:
    data = documented("ConfigMap")["data"]
    assert isinstance(data, dict)
    script = tmp_path / "health.lua"
    script.write_text(str(data["resource.customizations.health.training.dtj.dev_DistributedTrainingJob"]))
    assert made_of(waiters, "argocd", str(script)) == OF_ARGO_CD


def test_argo_workflows_waits_for_the_end(waiters: Path) -> None:
    template = dig(documented("WorkflowTemplate"), "spec", "templates", 0, "resource")
    conditions = str(dig(template, "successCondition")), str(dig(template, "failureCondition"))
    assert made_of(waiters, "argo-workflows", *conditions) == OF_WORKFLOWS


def test_katib_waits_for_the_end(waiters: Path) -> None:
    template = dig(documented("Experiment"), "spec", "trialTemplate")
    conditions = str(dig(template, "successCondition")), str(dig(template, "failureCondition"))
    assert made_of(waiters, "katib", *conditions) == OF_WORKFLOWS


class AirflowError(Exception):
    """Stands for AirflowException."""


def test_the_sensor_for_airflow_waits_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = (block.text for block in blocks(PAGE) if "airflow" in block.text)
    job: JsonObject = {}

    class Hook:
        def get_custom_object(self, *_: str) -> JsonObject:
            return job

    class Task:
        def sensor(self, **_: object) -> Any:
            return lambda function: function

    hooks = "airflow.providers.cncf.kubernetes.hooks.kubernetes"
    for name, field, value in (
        ("airflow.decorators", "task", Task()),
        ("airflow.exceptions", "AirflowException", AirflowError),
        (hooks, "KubernetesHook", Hook),
    ):
        module = ModuleType(name)
        setattr(module, field, value)
        for parent in (".".join(name.split(".")[: depth + 1]) for depth in range(name.count("."))):
            monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
        monkeypatch.setitem(sys.modules, name, module)
    names: dict[str, Any] = {}
    exec(code, names)
    found = {}
    for point, body in points().items():
        job.clear()
        job.update(body)
        try:
            found[point] = "Succeeded" if names["wait_for_training"]("digits", "default") else "Running"
        except AirflowError:
            found[point] = "Failed"
    assert found == OF_WORKFLOWS


class TestHelm:
    """The real Helm 4, which asks kstatus."""

    @pytest.fixture
    def helm(self, world: JobWorld, tmp_path: Path) -> Helm:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(world.plane.kubeconfig.read_text())
        return Helm(program=binaries.ensure(["helm"])["helm"], home=tmp_path / "helm", kubeconfig=kubeconfig)

    def chart(self, folder: Path) -> Path:
        """A chart with one job."""
        (folder / "templates").mkdir(parents=True)
        (folder / "Chart.yaml").write_text("apiVersion: v2\nname: training\nversion: 0.1.0\n")
        job = manifest(roles={"worker": 1}, runPolicy={"backoffLimit": 0})
        (folder / "templates" / "job.yaml").write_text(yaml.safe_dump(job))
        return folder

    @pytest.mark.usefixtures("operator")
    def test_install_with_wait_ends_when_all_pods_are_ready(self, helm: Helm, world: JobWorld, tmp_path: Path) -> None:
        with ThreadPoolExecutor() as pool:
            installing = pool.submit(self.install, helm, world, tmp_path)
            world.await_pods(["worker-0"])
            assert not installing.done()
            world.run_pods()
            assert "STATUS: deployed" in installing.result()
        world.await_state("Running")

    def install(self, helm: Helm, world: JobWorld, tmp_path: Path) -> str:
        chart = str(self.chart(tmp_path / "chart"))
        return helm.run("install", "training", chart, f"--namespace={world.namespace}", "--wait", "--timeout=5m")
