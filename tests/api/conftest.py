"""The operator, and the world in which it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.api_proxy import proxied
from support.chart import Helm
from support.command_line import CommandLine
from support.job_world import JobWorld
from support.kubelet_logs import KubeletLogs
from support.operator_process import OperatorProcess
from testbed import binaries


@pytest.fixture
def operator(world: JobWorld, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator that serves that namespace. It must stop in peace, and may not have logged an error."""
    process = OperatorProcess.serving(world.plane, [world.namespace], log=tmp_path / "operator.log")
    with process:
        process.await_serving()
        yield process
        print(process.log.read_text())  # shown where the test fails
        if process.running:
            process.await_serving()  # the test may have started it again
            code, _ = process.stop()
            assert code == 0, process.log.read_text()
        assert not process.defects, process.log.read_text()


@pytest.fixture
def dtj(world: JobWorld, tmp_path: Path) -> Iterator[CommandLine]:
    """``dtj`` as an administrator, in the test's namespace, as a process of its own."""
    with CommandLine(tmp_path, world.plane.kubeconfig, world.namespace) as command_line:
        yield command_line


@pytest.fixture
def kubelet() -> KubeletLogs:
    """What the kubelets would know of logs; here are none to ask."""
    return KubeletLogs()


@pytest.fixture
def log_reader(world: JobWorld, kubelet: KubeletLogs, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an administrator with permission to read logs."""
    with proxied(world.plane, "reader", kubelet, tmp_path) as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="session")
def tools() -> Mapping[str, Path]:
    """helm and kube-score, which are built where they are missing."""
    return binaries.ensure(binaries.CHART_TOOLS)


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """helm without a cluster."""
    return Helm(program=binaries.ensure(("helm",))["helm"], home=tmp_path / "helm")
