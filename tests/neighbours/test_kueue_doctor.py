"""``dtj doctor`` reads the queues of the real Kueue."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dtj.cli.main import cli
from support.job_world import JobWorld
from support.kueue_queues import Queues

pytestmark = pytest.mark.usefixtures("operator")


def findings(world: JobWorld) -> list[str]:
    """The lines of ``dtj doctor`` about queues, without their remedies."""
    place = ("-n", world.namespace, "--kubeconfig", str(world.plane.kubeconfig))
    result = CliRunner().invoke(cli, ["doctor", *place], prog_name="dtj", standalone_mode=False)
    assert result.exception is None, result.output
    lines = (line.partition(" queues: ") for line in result.output.splitlines())
    return [f"{verdict.strip()}: {words}" for verdict, found, words in lines if found]


def test_queues_that_admit_no_job_are_named(queues: Queues) -> None:
    queues.make("gpus", cpus=2)
    queues.point("lost", at="nowhere")
    queues.make("held", cpus=2)
    queues.stop("held", "Hold")
    queues.make("closed", cpus=2, namespaceSelector={"matchLabels": {"team": "none"}})
    queues.submit("large", workers=3)
    name = queues.prefix
    wanted = {
        f"ok: LocalQueue gpus admits jobs (ClusterQueue {name}-gpus); 1 job waiting",
        f"fail: LocalQueue lost admits no job: its ClusterQueue {name}-nowhere does not exist",
        f"fail: LocalQueue held admits no job: ClusterQueue {name}-held: Can't admit new workloads: is stopped.",
        f"ok: LocalQueue closed admits jobs (ClusterQueue {name}-closed)",
        f"fail: ClusterQueue {name}-closed admits no job of namespace {queues.world.namespace}: its "
        "namespaceSelector differs",
    }

    def reported() -> None:
        assert set(findings(queues.world)) == wanted

    queues.world.eventually(reported)
