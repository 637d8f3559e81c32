"""The job that trains a function: a valid manifest, and the function among its code."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from dtj.api.json import dig, objects
from dtj.client.checks import manifests_of
from dtj.client.training import SCRIPT, job_of

pytestmark = pytest.mark.unit


def fit(epochs: int) -> None:
    """What a notebook would train."""
    print("trained", epochs * 3)


@pytest.mark.parametrize(("workers", "strategy"), [(1, "OneDevice"), (3, "MultiWorkerMirrored")])
def test_a_function_becomes_a_job_of_the_trainer_with_its_code(workers: int, strategy: str) -> None:
    given: dict[str, Any] = {"strategy": None, "name": None, "code": None, "env": {"A": "b"}, "resources": {}}
    made, code = job_of(
        fit, {"epochs": 5}, image="a:1", workers=workers, checkpoint={"path": "s3://b/fit"}, accelerator=None, **given
    )
    (manifest,) = manifests_of(made)
    assert manifest.job.name.startswith("fit-")
    assert (str(manifest.spec.strategy), manifest.spec.replica_specs["worker"].replicas) == (strategy, workers)  # type: ignore[union-attr]
    (container,) = objects(dig(manifest.body, "spec", "template", "spec", "containers"))
    assert (container["args"], container["env"]) == ([f"--script={SCRIPT}"], [{"name": "A", "value": "b"}])
    with tarfile.open(fileobj=io.BytesIO(code.archive)) as archive:
        assert archive.getnames() == [SCRIPT]
