"""The operator in the cluster with nodes, as its users install it; all end-to-end tests run under it, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import release_build

from dtj.api.json import JsonObject
from dtj.api.names import IMAGE_REGISTRY
from support.chart import Helm
from support.cluster_jobs import ClusterJobs
from support.installation import Installation
from testbed import Cluster, NodeCluster, binaries
from testbed.cluster import CRDS

LOCKED_NAMESPACE = "dtj-e2e-locked"
"""A namespace that enforces the Pod Security Standard "restricted"."""


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
    crds: JsonObject = {"enabled": False}  # they are there, as after `kubectl apply -f crds/`
    release = Installation(node_cluster, helm, values={**images, "gangSchedulers": ["Native"], "crds": crds})
    node_cluster.kubectl("create", "namespace", LOCKED_NAMESPACE)
    node_cluster.kubectl("label", "namespace", LOCKED_NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    release.install()
    yield release
    release.uninstall()
    node_cluster.kubectl("delete", "namespace", LOCKED_NAMESPACE)


@pytest.fixture
def operator(installed: Installation) -> Iterator[Installation]:
    """The operator that runs in the cluster. What it has logged is shown where a test fails."""
    yield installed
    print(installed.logs())


@pytest.fixture
def vacated(operator: Installation) -> Iterator[Installation]:
    """The installation of the run, uninstalled. Afterwards it is there again, with the CRD of this checkout.

    Tests install charts of their own in its place, with their CRD.
    """
    operator.uninstall()
    yield operator
    print(operator.logs())
    operator.uninstall()
    operator.cluster.kubectl("replace", "--filename", str(CRDS))
    operator.install()


@pytest.fixture(scope="session")
def released_chart(
    node_testbed: NodeCluster, operator_image: str, trainer_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The chart as `make release` packages it; the images that it names by digest are on the node, from archives."""
    folder = tmp_path_factory.mktemp("release")
    chart = release_build.build_for_clusters(folder, images=True)
    version = release_build.version_of(release_build.ROOT)
    for image in release_build.IMAGES:
        archive = release_build.archive_of(image, folder, version)
        node_testbed.import_image(archive, f"{IMAGE_REGISTRY}/dtj-{image}")
        archive.unlink()  # 1.5 GB that nobody needs any more
    return chart


@pytest.fixture
def jobs(operator: Installation, node_namespace: str) -> ClusterJobs:
    """A fresh namespace whose jobs the operator runs."""
    return ClusterJobs(operator.cluster, node_namespace)


@pytest.fixture
def locked_jobs(operator: Installation) -> ClusterJobs:
    """The namespace that is locked down."""
    return ClusterJobs(operator.cluster, LOCKED_NAMESPACE)
