"""`--run-eagerly`, to step through with a debugger: every strategy."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer.cluster import Job

pytestmark = pytest.mark.trainer

THREE_STEPS = ("--run-eagerly", "--epochs=1", "--batch-size=480")


@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("OneDevice", {"worker": 1}),
        ("Mirrored", {"worker": 1}),
        ("CentralStorage", {"worker": 1}),
        ("MultiWorkerMirrored", {"worker": 2}),
        ("ParameterServer", {"chief": 1, "worker": 1, "ps": 1}),
    ],
    ids=str,
)
def test_it_trains_without_a_graph(folder: Path, strategy: str, roles: Mapping[str, int]) -> None:
    arguments = [*THREE_STEPS, "--logical-cpus=2"]
    with Job(folder, strategy=strategy, roles=roles, arguments=arguments) as job:
        job.start()
        trains = [name for name in job.replicas if strategy != "ParameterServer" or name == "chief-0"]
        assert {job[name].wait() for name in trains} == {0}
    assert job.result["steps"] == 3
