"""``dtj report`` against a real API server: a bundle of what is there, and an honest list of what is not."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dtj.api.json import JsonObject
from dtj.cli.main import cli
from support.job_evidence import SECRET
from support.job_world import JobWorld
from support.kubelet_logs import KubeletLogs

TEMPLATE: JsonObject = {
    "spec": {
        "containers": [
            {"name": "trainer", "image": "example/trainer:1", "env": [{"name": "API_TOKEN", "value": SECRET}]}
        ]
    }
}


def dtj(world: JobWorld, *words: object, kubeconfig: Path) -> Result:
    """The command as a person types it."""
    place = ("--kubeconfig", str(kubeconfig), "-n", world.namespace)
    arguments = ["report", *map(str, words), *place]
    return CliRunner().invoke(cli, arguments, prog_name="dtj", standalone_mode=False)


def unpacked(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        members = ((member, archive.extractfile(member)) for member in archive)
        return {member.name.partition("/")[2]: found.read().decode() for member, found in members if found is not None}


def fail(world: JobWorld) -> None:
    """A job of two workers of which one fails."""
    world.run(template=TEMPLATE, runPolicy={"backoffLimit": 0, "cleanPodPolicy": "None"})
    world.end_pod("digits-worker-1", exit_code=1, message=f"token {SECRET}\nValueError: bad record")
    world.await_state("Failed")

    def is_reported() -> None:
        assert len(world.events()) >= 2

    world.eventually(is_reported)


@pytest.mark.usefixtures("operator")
def test_the_page_shows_with_which_versions_the_leader_trained(
    world: JobWorld, kubelet: KubeletLogs, log_reader: Path, tmp_path: Path
) -> None:
    fail(world)
    kubelet.say("digits-worker-0", "versions: python 3.11.9, tensorflow 2.21.0", second=1)
    page = tmp_path / "page.html"
    assert dtj(world, "digits", "--html", "-o", page, kubeconfig=log_reader).exit_code == 0
    assert "--logs includes them" in page.read_text()
    shown = re.sub(r"<[^>]*>", " ", page.read_text())
    assert re.search(r"Versions\s.*python\s+3\.11\.9\s+tensorflow\s+2\.21\.0", shown, re.DOTALL), shown


@pytest.mark.usefixtures("operator")
def test_a_job_that_failed_is_reported_whole(
    world: JobWorld, kubelet: KubeletLogs, log_reader: Path, tmp_path: Path
) -> None:
    fail(world)
    kubelet.say("digits-worker-0", "step 20/400 (5%)  loss 2.3000  1.2k examples/s", second=1)
    kubelet.say("digits-worker-0", "step 40/400 (10%)  loss 1.1000  1.3k examples/s", second=6)
    kubelet.say("digits-worker-1", f"the token is {SECRET}", second=7)
    file = tmp_path / "digits.tar.gz"
    done = dtj(world, "digits", "--logs", "-o", file, kubeconfig=log_reader)
    assert done.return_value == 0, done.output
    assert done.output.startswith(f"Wrote {file}: ")
    found = unpacked(file)
    pods = {f"pods/digits-worker-{index}.yaml" for index in (0, 1)}
    logs = {f"logs/digits-worker-{index}.log" for index in (0, 1)}
    assert found.keys() >= {"INDEX", "page.html", "job.yaml", "events.txt", "doctor.txt", *pods, *logs}
    assert "its Service" not in found["INDEX"], "it goes with the end of the job"
    assert all(SECRET not in content for content in found.values())
    assert found["logs/digits-worker-1.log"].endswith(" the token is (redacted)\n")
    assert "PodsCreated  DistributedTrainingJob digits" in found["events.txt"]
    for words in ("What went wrong", "ValueError: bad record", "Timeline", "loss", "polyline"):
        assert words in found["page.html"]


@pytest.mark.usefixtures("operator")
def test_what_a_person_may_not_read_is_listed(world: JobWorld, tmp_path: Path) -> None:
    fail(world)
    kubectl = world.plane.kubectl
    kubectl("-n", world.namespace, "create", "role", "ann", "--verb=get", "--resource=distributedtrainingjobs")
    kubectl("-n", world.namespace, "create", "rolebinding", "ann", "--role=ann", "--user=ann")
    file = tmp_path / "digits.tar.gz"
    done = dtj(world, "digits", "-o", file, kubeconfig=world.plane.kubeconfig_for("ann"))
    assert done.return_value == 0, done.output
    found = unpacked(file)
    assert found.keys() == {"INDEX", "page.html", "job.yaml", "status.yaml", "doctor.txt"}
    for what in ("the job's pods", "its Service", "events", "nodes", "the operator's pods"):
        assert f"\n  {what}: " in found["INDEX"]
    assert 'User "ann" cannot list resource "pods"' in found["INDEX"]
    assert "could not be read: its INDEX lists them." in done.output
