"""The cluster that `api` tests run against, as pytest fixtures.

`cluster` is the one place that decides which cluster that is; the other fixtures and the tests build on it and do not
know. Today it is the testbed's control plane: one for the whole run, shared by all xdist workers, started by the first
test that asks and stopped when the run ends. Binaries are built before the first test starts, so that no test's
timeout pays for it. Where they cannot be had, the tests skip and say why, or fail if DTJ_REQUIRE_API=1 (CI).
"""

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed import ControlPlane, KubectlError, Unavailable, binaries, runs

FIXTURES = frozenset({"cluster", "own_control_plane"})


@dataclass(frozen=True)
class SharedRun:
    """The control plane that a test run shares: the name of its directory, and the pytest process it belongs to."""

    name: str
    owner: int


SHARED = pytest.StashKey[SharedRun]()
BUILT = pytest.StashKey[Mapping[str, Path]]()
MISSING = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """The main pytest process names the shared run; its xdist workers are told."""
    told = getattr(config, "workerinput", None)
    config.stash[SHARED] = (
        SharedRun(told["dtj_run"], told["dtj_owner"])
        if told
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
    if shared.owner == os.getpid():
        runs.remove(runs.root() / shared.name)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what the selected tests need, while no test's clock ticks."""
    if session.config.option.collectonly or not any(map(_needs_cluster, session.items)):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            session.config.stash[BUILT] = binaries.ensure()
        except Unavailable as error:
            session.config.stash[MISSING] = f"no testbed: {error}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail here rather than in a fixture, so that pytest's summary folds all of them into one line."""
    missing = item.config.stash.get(MISSING, None)
    if missing is None or not _needs_cluster(item):
        return
    if os.environ.get("DTJ_REQUIRE_API") == "1":
        pytest.fail(f"DTJ_REQUIRE_API=1, but {missing}", pytrace=False)
    pytest.skip(missing)


def _needs_cluster(item: pytest.Item) -> bool:
    return not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> ControlPlane:
    """The cluster of this run, with the CRDs installed. Tests share it: keep to a `namespace` of your own."""
    built = request.config.stash[BUILT]
    shared = request.config.stash[SHARED]
    run = runs.root() / shared.name
    with runs.launching():
        if run.exists():
            return ControlPlane(run, binaries=built)
        return _launch(shared.name, owner=shared.owner, binaries=built)


@pytest.fixture(scope="session")
def control_plane(cluster: ControlPlane) -> ControlPlane:
    """The cluster, for tests that need what only the testbed has, such as its audit log."""
    return cluster


@pytest.fixture(scope="class")
def own_control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane of the test's own (or of its class), to restart and to break. Takes 5 seconds to start."""
    name = f"own-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    plane = _launch(name, owner=os.getpid(), binaries=request.config.stash[BUILT])
    yield plane
    plane.stop()


@pytest.fixture(scope="session")
def kubeconfig(cluster: ControlPlane) -> Path:
    """The path of an administrator's kubeconfig."""
    return cluster.kubeconfig


@pytest.fixture
def namespace(cluster: ControlPlane) -> Iterator[str]:
    """A fresh namespace, deleted afterwards without waiting for the end of it."""
    name = cluster.new_namespace()
    yield name
    cluster.delete_namespace(name)


def _launch(name: str, *, owner: int, binaries: Mapping[str, Path]) -> ControlPlane:
    plane = ControlPlane.launch(name, owner=owner, binaries=binaries)
    try:
        plane.install_crds()
    except KubectlError:
        plane.stop()
        raise
    return plane
