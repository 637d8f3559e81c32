"""The operator as a process: health, metrics, signals, and what it says when it cannot start."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from dtj import __version__
from dtj.engine.metrics import TABLE
from loopback import free_ports
from patience import PATIENCE_SECONDS
from support.job_world import JobWorld
from support.kubeconfigs import copied, kubeconfig
from support.operator_process import GRACE_SECONDS, OperatorProcess
from support.programs import SOURCES
from support.waiting import eventually, eventually_true
from testbed import ControlPlane


def http_status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def metrics(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as reply:
        lines = reply.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def help_texts(port: int) -> dict[str, str]:
    """Each metric with its help."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as reply:
        lines = reply.read().decode().splitlines()
    found = (line.split(" ", 3)[2:] for line in lines if line.startswith("# HELP "))
    return {name: text for name, text in found if not name.endswith("_created")}


def test_it_is_healthy_and_ready_and_counts_what_it_does(world: JobWorld, tmp_path: Path) -> None:
    health, numbers = free_ports(2)
    ports = (f"--health-port={health}", f"--metrics-port={numbers}")
    with OperatorProcess.serving(world.plane, [world.namespace], *ports, log=tmp_path / "log"):
        eventually_true(lambda: http_status(health, "/healthz") == 200)
        eventually_true(lambda: http_status(health, "/readyz") == 200)
        world.run()

        def counted() -> dict[str, float]:
            """The operator counts when it has the answer to its last write, whose effect others may see before."""
            found = metrics(numbers)
            assert found['dtj_jobs{state="Running"}'] == 1
            assert found['dtj_launch_seconds_count{until="AllReady"}'] == 1
            return found

        found = eventually(counted)
        assert found['dtj_api_requests_total{code="201",resource="services",verb="create"}'] == 1
        assert found['workqueue_adds_total{name="jobs"}'] >= 2
        assert found["dtj_leader"] == 1
        assert found[f'dtj_build_info{{version="{__version__}"}}'] == 1
        assert not [name for name in found if "digits" in name], "no label may hold a job's name"
        assert help_texts(numbers) == {metric.shown: metric.text for metric in TABLE}


def test_it_is_alive_but_not_ready_while_it_waits_for_the_api_server(tmp_path: Path) -> None:
    health, dead = free_ports(2)
    with OperatorProcess(
        kubeconfig(tmp_path, f"http://127.0.0.1:{dead}"), f"--health-port={health}", log=tmp_path / "log"
    ) as operator:
        operator.await_line("the API server does not answer")
        eventually_true(lambda: http_status(health, "/healthz") == 200)
        assert http_status(health, "/readyz") == 503
        code, seconds = operator.stop()
        assert code == 0
        assert seconds < GRACE_SECONDS


def test_a_job_of_another_namespace_is_left_alone(world: JobWorld, cluster: ControlPlane, tmp_path: Path) -> None:
    other = JobWorld.new(cluster)
    with OperatorProcess.serving(world.plane, [world.namespace], log=tmp_path / "log"):
        other.submit()
        world.begin()
        assert other.pods() == {}
        assert other.job().status.state == ""


def test_credentials_that_are_not_accepted_end_it_with_one_line(cluster: ControlPlane, tmp_path: Path) -> None:
    with OperatorProcess(
        copied(cluster.kubeconfig, tmp_path, user={"token": "wrong"}), log=tmp_path / "log"
    ) as operator:
        assert operator.wait() == 4
        line = operator.lines()[-1]
        assert len(operator.lines()) == 2, "a greeting, and why it ends"
        assert "does not accept our credentials" in line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--context=nowhere"], "nowhere"),
        (["--accelerator-profiles=/no/such/file"], "/no/such/file: No such file or directory"),
        ([f"--accelerator-profiles={SOURCES / 'dtj' / '__init__.py'}"], "not YAML"),
    ],
    ids=["context", "missing profiles", "profiles that are no YAML"],
)
def test_a_setting_that_cannot_be_used_ends_it_with_one_line(
    cluster: ControlPlane, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    with OperatorProcess(cluster.kubeconfig, *arguments, log=tmp_path / "log") as operator:
        assert operator.wait() == 2
        line = operator.lines()[-1]
        assert len(operator.lines()) == 2, "a greeting, and why it ends"
        assert complaint in line
