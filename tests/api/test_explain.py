"""``dtj explain``: a real API server takes each object that it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import CLAIM_TEMPLATE, manifest
from dtj.api.json import JsonObject
from dtj.cli.main import cli
from support.local_runs import write
from testbed import ControlPlane

JOBS = {
    "with a claim and TensorBoard": manifest(checkpoint={"claimTemplate": CLAIM_TEMPLATE}, port=3333, tensorBoard={}),
    "with servers and an evaluator": manifest(
        strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}
    ),
    "on a TPU": manifest(strategy="TPU", accelerator={"profile": "tpu-v5e", "topology": "2x4"}),
}


@pytest.mark.parametrize("which", JOBS)
def test_kubectl_takes_what_explain_prints(
    cluster: ControlPlane, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    body: JsonObject = JOBS[which]
    file = write(tmp_path, body)
    assert cli.main(["explain", str(file), "-n", namespace], standalone_mode=False) == 0
    text = capsys.readouterr().out
    done = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", "-", stdin=text, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(server dry run)") == text.count("\nkind: ")
