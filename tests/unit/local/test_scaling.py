"""The number of workers that a person asks of a run on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from builders import job, manifest
from dtj.api.spec import Role
from dtj.local.ports import local_network, most_workers
from dtj.local.run_directory import RunDirectory, RunError
from dtj.local.scaling import ask, asked


def run_of(folder: Path, **spec: object) -> RunDirectory:
    directory = RunDirectory(folder)
    directory.manifest.write_text(yaml.safe_dump(manifest(roles={"worker": 2}, **spec)))  # type: ignore[arg-type]
    return directory


@pytest.mark.parametrize(
    ("elastic", "workers", "words"),
    [
        (None, 3, "digits is not elastic: run it with spec.elastic"),
        ({"minReplicas": 2, "maxReplicas": 4}, 1, "--replicas=1: spec.elastic of digits allows from 2 to 4"),
        ({"maxReplicas": 4}, 5, "--replicas=5: spec.elastic of digits allows from 1 to 4"),
        ({"maxReplicas": 10_000}, 17, "--replicas=17: a run on this machine is scaled to 16 at most"),
    ],
)
def test_a_number_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, elastic: dict[str, int] | None, workers: int, words: str
) -> None:
    directory = run_of(tmp_path, **({} if elastic is None else {"elastic": elastic}))
    with directory.locked(), pytest.raises(RunError, match=f"^{words}$"):
        ask(directory, workers)
    assert asked(directory) is None


def test_a_run_that_is_over_is_not_scaled(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not run any more: start it again with dtj run"):
        ask(run_of(tmp_path, elastic={"maxReplicas": 4}), 3)


def test_a_run_whose_manifest_cannot_be_read_is_not_scaled(tmp_path: Path) -> None:
    directory = run_of(tmp_path)
    directory.manifest.write_text("a: [")
    with directory.locked(), pytest.raises(RunError, match=r"^--run: .*manifest.yaml: line 1: is not YAML$"):
        ask(directory, 3)


def test_the_last_number_counts(tmp_path: Path) -> None:
    directory = run_of(tmp_path, elastic={"maxReplicas": 4})
    with directory.locked():
        ask(directory, 3)
        ask(directory, 1)
    assert asked(directory) == 1


def test_a_job_that_could_become_huge_takes_no_ports_for_that(tmp_path: Path) -> None:
    spec = job(roles={"worker": 2}, elastic={"maxReplicas": 10_000, "spares": 2}).spec
    assert spec is not None
    assert most_workers(spec) == 16
    with local_network(spec) as network:
        assert network.status_port(role=Role.WORKER, index=17)
        with pytest.raises(KeyError):
            network.status_port(role=Role.WORKER, index=18)
