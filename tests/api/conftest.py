"""The operator, and the world in which it works."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.api_proxy import ApiProxy, Upstream
from support.chart import Helm
from support.job_world import JobWorld
from support.kubelet_logs import KubeletLogs
from support.loop_thread import LoopThread
from support.operator_process import GRACE_SECONDS, OperatorProcess, grant
from testbed import ControlPlane, Unavailable, binaries


@pytest.fixture
def world(cluster: ControlPlane, namespace: str) -> JobWorld:
    """A namespace of the test's own in which the operator may work."""
    grant(cluster, namespace)
    return JobWorld(cluster, namespace)


@pytest.fixture
def operator(world: JobWorld, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator for that namespace. It must stop in time and in peace, and may not have logged an error."""
    process = OperatorProcess.serving(world.plane, [world.namespace], log=tmp_path / "operator.log")
    with process:
        yield process
        print(process.log.read_text())  # shown where the test fails
        if process.running:
            process.await_serving()  # a short test may be over before the operator is up
            code, seconds = process.stop()
            assert code == 0, process.log.read_text()
            assert seconds < GRACE_SECONDS
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
        upstream = Upstream(world.plane.url, world.plane.tls_for("reader", groups=["system:masters"]))
        proxy = ApiProxy(upstream, trouble=kubelet)
        loop.run(proxy.start())
        yield proxy.kubeconfig(tmp_path)
        loop.run(proxy.close())
        loop.run(upstream.close())


@pytest.fixture(scope="session")
def tools() -> Mapping[str, Path]:
    """helm, kubeconform and kube-score."""
    try:
        return binaries.ensure(binaries.CHART_TOOLS)
    except Unavailable as error:
        if os.environ.get("DTJ_REQUIRE_API") == "1":
            pytest.fail(f"DTJ_REQUIRE_API=1, but no chart tools: {error}", pytrace=False)
        pytest.skip(f"no chart tools: {error}")


@pytest.fixture
def helm(tools: Mapping[str, Path], tmp_path: Path) -> Helm:
    """helm without a cluster."""
    return Helm(program=tools["helm"], home=tmp_path / "helm")
