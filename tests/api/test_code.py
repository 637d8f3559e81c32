"""Code without an image: its ConfigMap and its job on a real API server, with the real garbage collector."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

from builders import manifest
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition
from dtj.client import AlreadyExists, Client, CodeError, WaitTimeout, train
from dtj.client.code_manifest import ARCHIVE
from patience import PATIENCE_SECONDS
from support.command_line import CommandLine
from support.job_world import JobWorld
from support.kubelet_logs import KubeletLogs
from support.local_runs import write
from support.operator_process import OperatorProcess
from support.waiting import eventually_true

KIND = "distributedtrainingjob.training.dtj.dev"


@pytest.fixture
def dtj(dtj: CommandLine) -> CommandLine:
    """``dtj`` in a directory with a script."""
    (dtj.folder / "code").mkdir()
    (dtj.folder / "code" / "train.py").write_text("print('first')")
    return dtj


def config_maps(world: JobWorld) -> dict[str, JsonObject]:
    """Those with code, by name."""
    return world.config_maps("")


def owners(config_map: JsonObject) -> list[object]:
    return [owner["name"] for owner in objects(dig(config_map, "metadata", "ownerReferences"))]


def change(folder: Path) -> None:
    """Change the code in the folder."""
    (folder / "code" / "train.py").write_text("print('second')")


def submit(dtj: CommandLine, *names: str) -> subprocess.CompletedProcess[str]:
    """``dtj submit --code code`` of jobs of these names."""
    return dtj.run("submit", "--code", "code", write(dtj.folder, *map(manifest, names)))


def test_a_job_is_submitted_with_its_code_which_goes_with_it(world: JobWorld, dtj: CommandLine) -> None:
    done = submit(dtj, "a")
    assert done.returncode == 0, done.stderr
    ((name, config_map),) = config_maps(world).items()
    assert done.stdout == f"configmap/{name} created\n{KIND}/a created\n"
    assert done.stderr.startswith("Code of code: 1 file, 14 bytes, packed ")
    assert config_map["immutable"] is True
    assert owners(config_map) == ["a"]
    volumes = objects(dig(world.body("a"), "spec", "template", "spec", "volumes"))
    assert name in [dig(volume, "configMap", "name") for volume in volumes]
    world.delete_job("a")
    eventually_true(lambda: not config_maps(world))


def test_a_job_that_is_followed_has_its_code_too(world: JobWorld, dtj: CommandLine) -> None:
    done = dtj.run("run", "--cluster", "--timeout=1", "--code", "code", write(dtj.folder, manifest("a")))
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("Code of code: 1 file, 14 bytes, packed ")
    assert [owners(body) for body in config_maps(world).values()] == [["a"]]


def test_a_second_submit_with_other_code_changes_nothing_of_the_first(world: JobWorld, dtj: CommandLine) -> None:
    assert submit(dtj, "a").returncode == 0
    first = config_maps(world)
    change(dtj.folder)
    refused = submit(dtj, "a")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert '"a" already exists' in refused.stderr
    assert config_maps(world) == first, "that of the job that was refused is gone, too"
    assert submit(dtj, "b").returncode == 0
    assert len(config_maps(world)) == 2


def test_a_job_that_is_created_again_at_once_keeps_its_code(world: JobWorld, dtj: CommandLine) -> None:
    """The garbage collector removes that of its predecessor, which has the same name."""
    for _ in range(3):
        assert submit(dtj, "a").returncode == 0
        uid = world.job("a").uid
        world.delete_job("a")
    done = submit(dtj, "a")
    assert done.returncode == 0, done.stderr
    uid = world.job("a").uid

    def kept() -> None:
        ((_, config_map),) = config_maps(world).items()
        assert [owner["uid"] for owner in objects(dig(config_map, "metadata", "ownerReferences"))] == [uid]

    world.eventually(kept)


@pytest.mark.parametrize("apply", [("apply",), ("apply", "--server-side"), ("create",)], ids=" ".join)
def test_what_is_printed_is_complete_for_kubectl(world: JobWorld, dtj: CommandLine, apply: tuple[str, ...]) -> None:
    printed = dtj.run("submit", "--code", "code", "-o", "yaml", write(dtj.folder, manifest("a")))
    world.plane.kubectl(*apply, "--validate=strict", "-n", world.namespace, "-f", "-", stdin=printed.stdout)
    ((name, config_map),) = config_maps(world).items()
    _, job = yaml.safe_load_all(printed.stdout)
    assert dig(world.body("a"), "spec", "template") == dig(job, "spec", "template")
    assert owners(config_map) == []
    assert name in printed.stdout


def test_code_of_the_largest_size_is_taken_by_the_server_and_by_kubectl(world: JobWorld, dtj: CommandLine) -> None:
    (dtj.folder / "code" / "weights").write_bytes(random.Random(1).randbytes(2**20 - 2000))
    assert submit(dtj, "a").returncode == 0
    printed = dtj.run("submit", "--code", "code", "-o", "json", write(dtj.folder, manifest("b")))
    world.plane.kubectl("apply", "--server-side", "-n", world.namespace, "-f", "-", stdin=printed.stdout)
    assert len(config_maps(world)) == 2


def test_the_python_client_submits_code_too(world: JobWorld, dtj: CommandLine) -> None:
    with Client(namespace=world.namespace, kubeconfig=str(world.plane.kubeconfig)) as client:
        job = client.submit(manifest("a"), code=dtj.folder / "code")
        assert [owners(body) for body in config_maps(world).values()] == [["a"]]
        with pytest.raises(AlreadyExists):
            client.submit(manifest("a"), code=dtj.folder / "code")
        with pytest.raises(CodeError, match="none: directory not found"):
            client.submit(manifest("b"), code=dtj.folder / "none")
        assert [found.uid for found in client.list()] == [job.uid]


def fit(epochs: int) -> None:
    """What a notebook would train."""
    print("trained", epochs * 3)


def test_a_function_is_trained_from_a_notebook(
    world: JobWorld, operator: OperatorProcess, kubelet: KubeletLogs, log_reader: Path, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "helpers.py").touch()
    submit_function = partial(train, fit, image="example/trainer:1", namespace=world.namespace)
    with submit_function({"epochs": 5}, workers=4, code=tmp_path / "code", kubeconfig=str(log_reader)) as run:
        assert run.name.startswith("fit-")
        world.await_pods([f"worker-{index}" for index in range(4)], run.name)
        (pod, *_) = world.pods(run.name).values()
        (container,) = objects(dig(pod, "spec", "containers"))
        assert (container["args"], container["workingDir"]) == (["--script=dtj_function.py"], "/code")
        assert world.job(run.name).spec.strategy == "MultiWorkerMirrored"  # type: ignore[union-attr]
        archive = base64.b64decode(
            text(dig(config_maps(world), f"{run.name}-code-{_digest(pod)}", "binaryData", ARCHIVE))
        )
        (tmp_path / "pod").mkdir()
        subprocess.run(["tar", "-xz", "-C", tmp_path / "pod"], input=archive, check=True)
        assert (tmp_path / "pod" / "helpers.py").exists()
        program = [sys.executable, "dtj_function.py"]
        assert subprocess.check_output(program, cwd=tmp_path / "pod", text=True) == "trained 15\n"

        with pytest.raises(WaitTimeout):
            run.wait(timeout=0)
        world.run_pods(run.name)
        kubelet.say(f"{run.name}-worker-0", "trained 15")
        for index in range(1, 4):
            kubelet.say(f"{run.name}-worker-{index}", "so did I")
        assert "worker-0 | trained 15" in list(run.logs())
        world.end_pod(f"{run.name}-worker-0", exit_code=0)
        assert run.wait(timeout=PATIENCE_SECONDS).status.is_true(Condition.COMPLETE)
        assert run.job().uid
        run.delete()
    eventually_true(lambda: not config_maps(world))


def _digest(pod: JsonObject) -> str:
    """The digits of the digest in the name of the ConfigMap that a pod mounts."""
    volumes = objects(dig(pod, "spec", "volumes"))
    (name,) = filter(None, (text(dig(volume, "configMap", "name")) for volume in volumes))
    return name.rpartition("-")[2]
