"""Losses and metrics that leave out or compare the examples of a batch are exact over two workers' uneven parts."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainer.cluster import DEADLINE, Job, inherited

pytestmark = pytest.mark.timeout(3 * DEADLINE)

SCRIPT = Path(__file__).parent / "scripts" / "gathered.py"
TOLERANCE = 1e-5


def test_losses_of_all_examples_train_over_two_workers_as_on_one_device(folder: Path, tmp_path: Path) -> None:
    alone = [sys.executable, str(SCRIPT), str(tmp_path / "alone")]
    subprocess.run(alone, env=inherited() | {"CUDA_VISIBLE_DEVICES": ""}, check=True, timeout=DEADLINE)
    arguments = [f"--script={SCRIPT}", "--", "learned"]
    with Job(folder, strategy="MultiWorkerMirrored", arguments=arguments) as job:
        assert job.start().wait(2 * DEADLINE) == {"worker-0": 0, "worker-1": 0}
    written = sorted(folder.glob("learned*.npz"))
    assert len(written) == 2
    with np.load(tmp_path / "alone.npz") as expected:
        for path in written:
            with np.load(path) as found:
                off = {
                    name: float(np.abs(expected[name] - found[name]).max() / max(1, np.abs(expected[name]).max()))
                    for name in expected.files
                }
            assert {name: one for name, one in off.items() if not one <= TOLERANCE} == {}
