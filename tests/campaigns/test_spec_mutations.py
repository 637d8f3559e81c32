"""Whatever is changed of a job's spec, whenever: it is refused, or the job becomes what one created so would be.

See support/campaigns/mutations.py for the changes and mutation_lab.py for what is checked. A failure names its
transitions, and ``--plan`` tries one alone:

    .venv/bin/python -m pytest tests/campaigns/test_spec_mutations.py --plan running:runPolicy.suspend=true
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource
from support.campaigns.mutation_lab import Lab, Tally
from support.campaigns.mutations import Transition, transitions
from support.campaigns.shards import chosen, part
from support.defects import Defects
from support.operator_process import USER, grant
from testbed import ControlPlane

pytestmark = pytest.mark.campaign


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shard", chosen())
def test_a_changed_job_becomes_what_one_created_so_would_be_or_the_change_is_refused(
    shard: int,
    cluster: ControlPlane,
    namespace: str,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    wanted = set(pytestconfig.getoption("--plan"))
    tried = [plan for plan in transitions() if str(plan) in wanted] if wanted else part(transitions(), shard)
    grant(cluster, namespace)
    began = time.monotonic()
    with Defects() as defects:
        tally = asyncio.run(_try(cluster, namespace, tried))
    seconds = time.monotonic() - began
    record_property(
        "report",
        f"shard {shard}: {len(tried)} changes of a spec, {tally.refused} refused, {tally.taken} taken, {seconds:.0f} s",
    )
    assert tally.refused + tally.taken == len(tried)
    assert not tally.wrong, f"{len(tally.wrong)} of {len(tried)} transitions:\n" + "\n".join(tally.wrong)
    assert not defects.lines, "\n".join(defects.lines)


async def _try(cluster: ControlPlane, namespace: str, tried: list[Transition]) -> Tally:
    user = await KubeGateway.connect(ConnectionSource(kubeconfig=str(cluster.kubeconfig)))
    operator = await KubeGateway.connect(ConnectionSource(kubeconfig=str(cluster.kubeconfig_for(USER))))
    try:
        return await Lab(user, operator, namespace).run(tried)
    finally:
        await user.close()
        await operator.close()
