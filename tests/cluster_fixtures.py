"""The clusters that `api` and `e2e` tests run against, as pytest fixtures.

`cluster` is a control plane without nodes, always the testbed's. `node_cluster` is one with nodes, and this fixture
alone decides which, by --cluster; the tests do not know. Each is one for the whole run, shared by all xdist workers,
started by the first test that asks and stopped when the run ends. Programs are built before the first test starts, so
that no test's timeout pays for it. A test that needs what cannot be had here fails, with one line that says why.
"""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from support import older_release
from support.job_world import JobWorld
from support.operator_process import grant
from support.slots import Slots
from testbed import Cluster, ControlPlane, KubectlError, NodeCluster, Unavailable, binaries, images, packages, runs
from testbed.kind import KindCluster, kind_works

Plane = TypeVar("Plane", bound=ControlPlane)
NODE_PROGRAMS = (*binaries.CONTROL_PLANE, *binaries.NODE)


@dataclass(frozen=True)
class SharedRun:
    """What a test run shares: the stem of its runs' names, and the pytest process that they belong to."""

    name: str
    owner: int

    @property
    def with_nodes(self) -> str:
        """The name of the run with nodes."""
        return f"{self.name}-nodes"


def _provide_neighbour(*programs: str) -> Callable[[pytest.Config], None]:
    """They are never built within a test run: a build of minutes is asked for, by `make test-neighbours`."""

    def provide(_: pytest.Config) -> None:
        if not binaries.are_built(programs):
            raise Unavailable(f"{', '.join(programs)} not built here: run `make test-neighbours`")

    return provide


def _provide_nodes(config: pytest.Config) -> None:
    if _chosen(config) == "testbed":
        packages.ensure(packages.NODE)
        binaries.ensure(NODE_PROGRAMS)


def _provide_operator_image(config: pytest.Config) -> None:
    binaries.ensure(("helm",))
    images.build(images.OPERATOR, docker=_in_docker(config))


NEEDS: Mapping[str, Callable[[pytest.Config], object]] = {
    "cluster": lambda _: binaries.ensure(),
    "own_control_plane": lambda _: binaries.ensure(),
    "older_state": lambda _: older_release.checkout(),
    "kueue": _provide_neighbour("kueue"),
    "waiters": _provide_neighbour("waiters"),
    "scheduler_plugins": _provide_neighbour("scheduler-plugins"),
    "node_cluster": _provide_nodes,
    "operator_image": _provide_operator_image,
    "older_operator_image": lambda config: images.build(older_release.operator(), docker=_in_docker(config)),
    "trainer_image": lambda config: images.build(images.TRAINER, docker=_in_docker(config)),
}
"""How what a fixture needs is provided, by its name."""


def _needs(item: pytest.Item) -> set[str]:
    """The fixtures of a test that need something. One of that name in the test's own file is another one."""
    fixtures = getattr(item, "_fixtureinfo", None)
    return {
        name
        for name, definitions in (fixtures.name2fixturedefs if fixtures is not None else {}).items()
        if name in NEEDS and not definitions[-1].func.__module__.rpartition(".")[2].startswith("test_")
    }


SHARED = pytest.StashKey[SharedRun]()
MISSING = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --cluster."""
    parser.addoption(
        "--cluster",
        choices=("testbed", "kind"),
        help="the cluster with nodes: by the testbed (needs root), or by kind, which is taken where it and Docker are",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The main pytest process names the shared run; its xdist workers get the name."""
    worker_input = getattr(config, "workerinput", None)
    config.stash[MISSING] = {}
    config.stash[SHARED] = (
        SharedRun(worker_input["dtj_run"], worker_input["dtj_owner"])
        if worker_input
        else SharedRun(f"pytest-{os.getpid()}-{uuid.uuid4().hex[:6]}", os.getpid())
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Called by xdist in the main process for every worker it starts."""
    shared = node.config.stash[SHARED]  # type: ignore[attr-defined]
    node.workerinput |= {"dtj_run": shared.name, "dtj_owner": shared.owner}  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    """The main process ends what the run shared, after all workers have ended."""
    shared = config.stash[SHARED]
    if shared.owner != os.getpid():
        return
    runs.remove(runs.root() / shared.name)
    nodes = runs.root() / shared.with_nodes
    if nodes.exists() and _chosen(config) == "kind":
        KindCluster(nodes).stop()
    runs.remove(nodes)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build and install what the selected tests need, while no test's clock ticks."""
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    needed = set().union(*map(_needs, session.items))
    for name, provide in NEEDS.items():
        if name in needed:
            with capture.global_and_fixture_disabled():
                try:
                    provide(session.config)
                except Unavailable as error:
                    session.config.stash[MISSING][name] = f"no testbed: {error}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail here rather than in a fixture, so that each failure is one line."""
    missing = item.config.stash[MISSING]
    for name in _needs(item) & missing.keys():
        pytest.fail(missing[name], pytrace=False)


def _chosen(config: pytest.Config) -> str:
    chosen: str | None = config.option.cluster
    return chosen or ("kind" if kind_works() else "testbed")


def _in_docker(config: pytest.Config) -> bool:
    """Whether images are built in Docker, where kind takes them from."""
    return _chosen(config) == "kind"


# -- a control plane ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> ControlPlane:
    """The control plane of this run, with the CRDs installed. Tests share it: keep to a `namespace` of your own."""
    shared = request.config.stash[SHARED]
    run = runs.root() / shared.name
    with runs.launching():
        if run.exists():
            return ControlPlane(run, binaries=binaries.ensure())
        return _launch(ControlPlane, shared.name, owner=shared.owner)


@pytest.fixture(scope="class")
def own_control_plane() -> Iterator[ControlPlane]:
    """A control plane of the test's own (or of its class), to restart and to break. Takes 5 seconds to start."""
    plane = _launch(ControlPlane, f"own-{os.getpid()}-{uuid.uuid4().hex[:6]}", owner=os.getpid())
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def older_state() -> Path:
    """The tree of an older state of this project, to upgrade from and to roll back to."""
    return older_release.checkout()


@pytest.fixture
def namespace(cluster: ControlPlane) -> Iterator[str]:
    """A fresh namespace, deleted afterwards without waiting for the end of it."""
    name = cluster.new_namespace()
    yield name
    cluster.delete_namespace(name)


@pytest.fixture
def world(cluster: ControlPlane, namespace: str) -> JobWorld:
    """A namespace of the test's own in which the operator may work."""
    grant(cluster, namespace)
    return JobWorld(cluster, namespace)


# -- a cluster with nodes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def node_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster of this run that has nodes, with the CRDs installed. Tests share it."""
    shared = request.config.stash[SHARED]
    run = runs.root() / shared.with_nodes
    chosen = _chosen(request.config)
    with runs.launching():
        if chosen == "testbed":
            if run.exists():
                return NodeCluster(run, binaries=binaries.ensure(NODE_PROGRAMS))
            return _launch(NodeCluster, shared.with_nodes, owner=shared.owner)
        if run.exists():
            return KindCluster(run)
        other = KindCluster.launch(shared.with_nodes, owner=shared.owner)
        other.install_crds()
        return other


@pytest.fixture(scope="session")
def node_testbed(node_cluster: Cluster) -> NodeCluster:
    """The cluster with nodes, for tests that need what only the testbed has: its audit log, users, its machine."""
    if not isinstance(node_cluster, NodeCluster):
        pytest.skip("needs --cluster=testbed")
    return node_cluster


@pytest.fixture(scope="session")
def operator_image(request: pytest.FixtureRequest, node_cluster: Cluster) -> str:
    """The name of the operator's image, built from its Dockerfile and on the nodes: pull it IfNotPresent."""
    return _load(images.OPERATOR, request.config, node_cluster)


@pytest.fixture(scope="session")
def older_operator_image(request: pytest.FixtureRequest, node_cluster: Cluster) -> str:
    """The name of the operator's image of an older state, on the nodes."""
    return _load(older_release.operator(), request.config, node_cluster)


@pytest.fixture(scope="session")
def trainer_image(request: pytest.FixtureRequest, node_cluster: Cluster) -> str:
    """The name of the trainer's image, built from its Dockerfile and on the nodes: pull it IfNotPresent."""
    return _load(images.TRAINER, request.config, node_cluster)


@pytest.fixture
def node_namespace(node_cluster: Cluster) -> Iterator[str]:
    """A fresh namespace of the cluster with nodes, deleted afterwards without waiting for the end of it."""
    name = node_cluster.new_namespace()
    yield name
    node_cluster.delete_namespace(name)


def _load(recipe: images.Recipe, config: pytest.Config, cluster: Cluster) -> str:
    image = images.build(recipe, docker=_in_docker(config))
    with runs.launching():
        cluster.load_image(image)
    return image.name


def _launch(kind: type[Plane], name: str, *, owner: int) -> Plane:
    programs = NODE_PROGRAMS if issubclass(kind, NodeCluster) else binaries.CONTROL_PLANE
    plane = kind.launch(name, owner=owner, binaries=binaries.ensure(programs))
    try:
        plane.install_crds()
    except KubectlError:
        plane.stop()
        raise
    return plane


@pytest.fixture
def slots(world: JobWorld) -> Iterator[Slots]:
    """A node that has room for six pods, for tests of real schedulers."""
    node = Slots(world.plane, f"slots-{world.namespace}")
    node.create(6)
    yield node
    node.delete()
