"""Control planes of other versions of Kubernetes, for tests that run against several."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from testbed import ControlPlane, binaries
from testbed.versions import USUAL, VERSIONS

CHOICE = "DTJ_KUBERNETES_VERSIONS"
"""The versions of the matrix that are run: `all`, or a list such as `1.30,1.34`."""


def chosen(environment: str) -> tuple[str, ...]:
    """The minor versions that the variable names; without it the oldest and the newest. Raises ValueError."""
    if not environment:
        return (min(VERSIONS, key=_number), max(VERSIONS, key=_number))
    if environment == "all":
        return tuple(VERSIONS)
    unknown = [minor for minor in environment.split(",") if minor not in VERSIONS]
    if unknown:
        raise ValueError(f"{CHOICE}={environment}: {unknown[0]} is none of {', '.join(VERSIONS)}, nor all")
    return tuple(environment.split(","))


def started(minor: str) -> Iterator[ControlPlane]:
    """A control plane of this version, with the CRDs. The test fails if the version is not built here."""
    version = VERSIONS[minor]
    if version is not USUAL and not binaries.are_built(version.programs):
        pytest.fail(f"Kubernetes {minor} not built here: run `make test-neighbours {CHOICE}={minor}`", pytrace=False)
    name = f"v{minor}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    plane = ControlPlane.launch(name, owner=os.getpid(), binaries=version.paths())
    try:
        plane.install_crds()
        yield plane
    finally:
        plane.stop()


def _number(minor: str) -> int:
    return int(minor.removeprefix("1."))
