"""A real API server stores what the operator's adversary composes: what it refuses, no operator meets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from dtj.api import names
from dtj.api.form import DTJ
from dtj.api.tfjob.form import TFJOB
from dtj.kube.gateway import jobs_of
from operator_adversaries.cluster import edited, job_body
from operator_adversaries.compose import compose
from operator_adversaries.sample import Edit, Submit
from support import tfjob_operators
from testbed import ApiError, ControlPlane
from testbed.peers import TFJOBS

SEEDS: Final = range(26_000, 26_200)
LEAST: Final = 10
"""Jobs that are composed by these seeds."""

PLACES: Final = {names.KIND: f"/apis/{names.API_VERSION}", TFJOB.kind: TFJOBS}


def composed(kind: str) -> Iterator[tuple[str, Any]]:
    """What is written into jobs, by their shapes; what is taken from others is left out."""
    for seed in SEEDS:
        sample = compose(seed)
        for act in sample.acts if sample.form == kind else ():
            if isinstance(act, Submit) or (isinstance(act, Edit) and act.plural == "jobs"):
                yield sample.shape, tuple((path, value) for path, value in act.edits if "Taken(" not in repr(value))


@pytest.mark.parametrize("kind", PLACES)
def test_an_api_server_stores_what_is_composed_for_a_job(kind: str, cluster: ControlPlane) -> None:
    tfjob_operators.install(cluster)
    namespace, refused, number = cluster.new_namespace(), list[str](), 0
    form = TFJOB if kind == TFJOB.kind else DTJ
    root = f"{PLACES[kind]}/namespaces/{namespace}/{jobs_of(form).plural}"
    for shape, edits in composed(kind):
        number += 1
        made: Any = edited(job_body(form, f"x-{number}", shape), edits)
        status = made.pop("status", None)
        try:
            cluster.api.text("POST", root, msgspec.json.encode(made))
            if status is not None:
                cluster.api.text("PATCH", f"{root}/x-{number}/status", msgspec.json.encode({"status": status}))
        except ApiError as error:
            refused.append(f"{edits!r:.300}: {error!s:.300}")
    assert number > LEAST
    assert not refused, "\n".join(refused)
    cluster.delete_namespace(namespace)
