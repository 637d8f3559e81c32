"""``dtj doctor`` reads the queues of the real Kueue."""

from __future__ import annotations

import pytest

from support.command_line import typed
from support.job_world import JobWorld
from support.kueue_queues import Queues
from support.waiting import eventually_equal

pytestmark = pytest.mark.usefixtures("operator")


def findings(world: JobWorld) -> list[str]:
    """The lines of ``dtj doctor`` about queues, without their remedies."""
    result = typed(world.plane, world.namespace, "doctor")
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
    eventually_equal(lambda: set(findings(queues.world)), wanted)
