"""What the trainer tests share: one uninterrupted run that others are measured against."""

from pathlib import Path

import pytest

from trainer.cluster import Job

SHORT = (
    "--epochs=3",
    "--batch-size=48",
    "--learning-rate=0.0005",
    "--checkpoint-every-steps=10",
    "--checkpoint-keep=12",
)
"""90 steps of 48 examples, checkpoints at 10, 20, ... 90: epochs end in the middle of a step, between them."""


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """SHORT, uninterrupted, in one process; finished."""
    with Job(tmp_path_factory.mktemp("alone"), strategy="OneDevice", roles={"worker": 1}, arguments=SHORT) as job:
        assert job.start().wait() == {"worker-0": 0}
    return job


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """SHORT, uninterrupted, by two workers; finished."""
    folder = tmp_path_factory.mktemp("together")
    with Job(folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=SHORT) as job:
        assert job.start().wait() == {"worker-0": 0, "worker-1": 0}
    return job


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job's own directory; its name is the job's."""
    return tmp_path / "job"
