"""The operator in the cluster with nodes, as its users install it; all end-to-end tests of jobs run under it.

The xdist workers share the cluster and one installation. Each test has a namespace of its own, so most tests do not
disturb each other. A test that does (`disturbs`: it ends or replaces the operator) has the operator to itself; these
tests come last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import release_build

from cluster_fixtures import SHARED
from dtj.api.json import JsonObject
from dtj.api.names import IMAGE_REGISTRY
from support.chart import Helm
from support.cluster_jobs import ClusterJobs
from support.installation import Installation
from testbed import Cluster, NodeCluster, binaries
from testbed.cache import locked
from testbed.cluster import CRDS

LOCKED_NAMESPACE = "dtj-e2e-locked"
"""A namespace that enforces the Pod Security Standard "restricted"."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What disturbs others comes last."""
    items.sort(key=lambda item: item.get_closest_marker("disturbs") is not None)


def _notes(config: pytest.Config) -> Path:
    return config.stash[SHARED].folder


@pytest.fixture(scope="session")
def installed(
    request: pytest.FixtureRequest,
    node_cluster: Cluster,
    operator_image: str,
    trainer_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """The operator, installed by helm for the whole run, with two replicas: by the first worker, for all of them."""
    images: JsonObject = {
        value: dict(zip(("repository", "tag"), image.rsplit(":", 1), strict=True))
        for value, image in (("image", operator_image), ("trainerImage", trainer_image))
    }
    helm = Helm(
        program=binaries.ensure(("helm",))["helm"],
        home=tmp_path_factory.mktemp("helm"),
        kubeconfig=node_cluster.kubeconfig,
    )
    notes = _notes(request.config)
    users = notes / "users"
    with locked(notes / "installing"):
        release = Installation(
            node_cluster,
            helm,
            values={
                **images,
                "gangSchedulers": ["Native"],
                "crds": {"enabled": False},  # they are there, as after `kubectl apply -f crds/`
            },
        )
        if not users.exists():
            _make_locked_namespace(node_cluster)
            release.install()
            users.mkdir()
        own = users / str(os.getpid())
        own.touch()
    yield release
    with locked(notes / "installing"):
        own.unlink()
        if not any(users.iterdir()):
            users.rmdir()
            release.uninstall()
            node_cluster.kubectl("delete", "namespace", LOCKED_NAMESPACE)


def _make_locked_namespace(cluster: Cluster) -> None:
    cluster.kubectl("create", "namespace", LOCKED_NAMESPACE)
    cluster.kubectl("label", "namespace", LOCKED_NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")


@pytest.fixture(autouse=True)
def accelerators(request: pytest.FixtureRequest) -> Iterator[None]:
    """The fake nodes have few accelerators: tests that take some run one after another."""
    with ExitStack() as held:
        if request.node.get_closest_marker("takes_accelerators"):
            held.enter_context(locked(_notes(request.config) / "accelerators"))
        yield


@pytest.fixture
def operator(request: pytest.FixtureRequest, installed: Installation) -> Iterator[Installation]:
    """The operator that runs in the cluster. What it has logged is shown where a test fails."""
    alone = request.node.get_closest_marker("disturbs") is not None
    with locked(_notes(request.config) / "operator", shared=not alone):
        yield installed
    print(installed.logs())


@pytest.fixture
def vacated(operator: Installation) -> Iterator[Installation]:
    """The installation of the run, uninstalled. Afterwards it is there again, with the CRD of this checkout.

    For tests that disturb. They install charts of their own in its place, with their CRD.
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
