"""A release, built once for all tests of its files. It downloads from PyPI."""

from __future__ import annotations

from pathlib import Path

import pytest
import release_build

from testbed import binaries


@pytest.fixture(scope="session")
def repository() -> str:
    """Whose releases the files are of."""
    return "https://code.example/owner/dtj"


@pytest.fixture(scope="session")
def released(repository: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release."""
    folder = tmp_path_factory.mktemp("release")
    release_build.build(folder, helm=str(binaries.ensure(("helm",))["helm"]), repository=repository)
    return folder
