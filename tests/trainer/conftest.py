"""What the trainer tests share: uninterrupted runs that others are measured against, and how others are started."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainer.cluster import Job, inherited, ran
from trainer.fork_server import forking

if TYPE_CHECKING:
    from trainer.stores import Store

pytest_plugins = ["report"]

SHORT = (
    "--epochs=3",
    "--batch-size=48",
    "--learning-rate=0.0005",
    "--checkpoint-every-steps=10",
    "--checkpoint-keep=12",
)
"""90 steps of 48 examples, checkpoints at 10, 20, ... 90: epochs end in the middle of a step, between them."""


@pytest.fixture(scope="session", autouse=True)
def forked_starts() -> Iterator[None]:
    """What need not be started as in a pod is forked from a process that has imported TensorFlow."""
    with forking(inherited()):
        yield


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """SHORT, uninterrupted, in one process; finished."""
    return ran(tmp_path_factory.mktemp("alone"), arguments=SHORT, plain=True, exports=False)


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """SHORT, uninterrupted, by two workers; finished."""
    folder = tmp_path_factory.mktemp("together")
    return ran(folder, strategy="MultiWorkerMirrored", arguments=SHORT, plain=True, exports=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job's own directory; its name is the job's."""
    return tmp_path / "job"


@pytest.fixture(scope="module", params=["s3", "gs"])
def served(request: pytest.FixtureRequest) -> "Iterator[Store]":
    """A store of each kind, for the tests of a file."""
    from trainer.stores import store_with_bucket  # a server takes a second to import

    with store_with_bucket(request.param, "bucket") as store:
        yield store


@pytest.fixture
def store(served: "Store", monkeypatch: pytest.MonkeyPatch) -> "Iterator[Store]":
    """The store, which is empty and answers well when the test begins."""
    for name, value in served.environ.items():
        monkeypatch.setenv(name, value)
    yield served
    served.clear()
