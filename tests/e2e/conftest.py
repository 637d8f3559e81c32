"""The operator in the cluster with nodes, as its users install it; all end-to-end tests of jobs run under it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dtj.api.json import JsonObject
from support.chart import Helm
from support.cluster_jobs import ClusterJobs
from support.installation import Installation
from testbed import Cluster, NodeCluster, binaries

LOCKED_NAMESPACE = "dtj-e2e-locked"
"""A namespace that enforces the Pod Security Standard "restricted", with a network policy for training pods."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What judges the whole run comes last."""
    items.sort(key=lambda item: item.get_closest_marker("judges_the_run") is not None)


@pytest.fixture(scope="session")
def installed(
    node_cluster: Cluster, operator_image: str, trainer_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """The operator, installed by helm for the whole run, with two replicas."""
    images: JsonObject = {
        value: dict(zip(("repository", "tag"), image.rsplit(":", 1), strict=True))
        for value, image in (("image", operator_image), ("trainerImage", trainer_image))
    }
    helm = Helm(
        program=binaries.ensure(("helm",))["helm"],
        home=tmp_path_factory.mktemp("helm"),
        kubeconfig=node_cluster.kubeconfig,
    )
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    node_cluster.kubectl("create", "namespace", LOCKED_NAMESPACE)
    node_cluster.kubectl("label", "namespace", LOCKED_NAMESPACE, enforced)
    release = Installation(
        node_cluster,
        helm,
        values={
            **images,
            "gangSchedulers": ["Native"],
            "crds": {"enabled": False},  # they are there, as after `kubectl apply -f crds/`
            "networkPolicy": {"trainingPods": {"enabled": True, "namespaces": [LOCKED_NAMESPACE]}},
        },
        mark=node_cluster.audit.mark() if isinstance(node_cluster, NodeCluster) else 0,
    )
    release.install()
    yield release
    release.uninstall()
    node_cluster.delete_namespace(LOCKED_NAMESPACE)


@pytest.fixture
def operator(installed: Installation) -> Iterator[Installation]:
    """The operator that runs in the cluster. What it has logged is shown where a test fails."""
    yield installed
    print(installed.logs())


@pytest.fixture
def jobs(operator: Installation, node_namespace: str) -> ClusterJobs:
    """A fresh namespace whose jobs the operator runs."""
    return ClusterJobs(operator.cluster, node_namespace)


@pytest.fixture
def locked_jobs(operator: Installation) -> ClusterJobs:
    """The namespace that is locked down."""
    return ClusterJobs(operator.cluster, LOCKED_NAMESPACE)
