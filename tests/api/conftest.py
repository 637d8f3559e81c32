"""The operator, and the world in which it works."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.api_proxy import ApiProxy
from support.chart import Helm
from support.job_world import JobWorld
from support.kubelet_logs import KubeletLogs
from support.loop_thread import LoopThread
from support.operator_process import OperatorProcess, grant
from testbed import ControlPlane, binaries


@pytest.fixture
def world(cluster: ControlPlane, namespace: str) -> JobWorld:
    """A namespace of the test's own in which the operator may work."""
    grant(cluster, namespace)
    return JobWorld(cluster, namespace)


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
        defects = [line for line in process.lines() if " ERROR " in line or "Traceback" in line]
        assert not defects, process.log.read_text()


@pytest.fixture
def kubelet() -> KubeletLogs:
    """What the kubelets would know of logs; here are none to ask."""
    return KubeletLogs()


@pytest.fixture
def log_reader(world: JobWorld, kubelet: KubeletLogs, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an administrator with permission to read logs."""
    with LoopThread() as loop:
        tls = world.plane.tls_for("reader", groups=["system:masters"])
        proxy = ApiProxy(world.plane.url, tls, answer=kubelet)
        loop.run(proxy.start())
        yield proxy.kubeconfig(tmp_path)
        loop.run(proxy.close())


@pytest.fixture(scope="session")
def tools() -> Mapping[str, Path]:
    """helm and kube-score, which are built where they are missing."""
    return binaries.ensure(binaries.CHART_TOOLS)


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """helm without a cluster."""
    return Helm(program=binaries.ensure(("helm",))["helm"], home=tmp_path / "helm")
