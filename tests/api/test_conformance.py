"""This operator behaves as tests/conformance says, for its own jobs and for TFJobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import PATIENCE_SECONDS
from support import tfjob_operators
from support.snippets import ROOT
from testbed import ControlPlane


@pytest.fixture(scope="class")
def served(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster, all of whose jobs this operator serves."""
    tfjob_operators.install(own_control_plane)
    tfjob_operators.grant_everywhere(own_control_plane)
    log = tmp_path_factory.mktemp("conformance") / "operator.log"
    with tfjob_operators.ours(own_control_plane, log=log) as operator:
        operator.await_serving()
        yield own_control_plane.kubeconfig
        assert not operator.defects, "\n".join(operator.defects)


class TestTheOperator:
    @pytest.mark.parametrize("adapter", ["dtj", "tfjob"])
    def test_behaves_as_the_list_says(self, served: Path, adapter: str) -> None:
        command = [sys.executable, "-m", "conformance", "--adapter", adapter, f"--within={PATIENCE_SECONDS}"]
        environment = {**os.environ, "KUBECONFIG": str(served)}
        done = subprocess.run(
            command, cwd=ROOT / "tests", env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        print(done.stdout)
        assert done.returncode == 0
