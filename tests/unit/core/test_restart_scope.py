"""Who restarts when a replica is lost: strategy, role and class of the end, in one table."""

from __future__ import annotations

from typing import Final

import pytest

from builders import job, pod, spec_of
from dtj.api.spec import RestartScope, Role, Strategy
from dtj.core.pod_failure import LATEST, PodEnd, PodFailureClass
from dtj.core.policies.restart_scope import requires_full_restart

LOSSES: Final = tuple(each for each in PodFailureClass if each is not PodFailureClass.COMPLETED)
PEER_LOST: Final = PodFailureClass.PEER_LOST

ALL: Final = frozenset(LOSSES)
ALONE: Final[frozenset[PodFailureClass]] = frozenset()

COLLECTIVE: Final = (Strategy.MULTI_WORKER_MIRRORED, Strategy.TPU, Strategy.PIPELINE)
ONE_PROCESS: Final = (Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.CENTRAL_STORAGE)
ANY: Final = tuple(Strategy)

TABLE: Final[dict[tuple[Strategy, Role], frozenset[PodFailureClass]]] = {
    # A collective breaks when one member is lost.
    **{(strategy, role): ALL for strategy in COLLECTIVE for role in (Role.CHIEF, Role.WORKER)},
    # Chief and workers come back to servers that live on, unless the chief says that it lost one.
    (Strategy.PARAMETER_SERVER, Role.CHIEF): frozenset({PEER_LOST}),
    (Strategy.PARAMETER_SERVER, Role.WORKER): ALONE,
    # The variables go with a server.
    (Strategy.PARAMETER_SERVER, Role.PS): ALL,
    # A training in one process has no peers.
    **{(strategy, role): ALONE for strategy in ONE_PROCESS for role in (Role.CHIEF, Role.WORKER)},
    # Nobody depends on the life of an evaluator; replicas that train wait for the data service.
    **{(strategy, role): ALONE for strategy in ANY for role in (Role.EVALUATOR, Role.DISPATCHER, Role.DATA_WORKER)},
}
"""The classes of ends after which all replicas start again from the checkpoint; after others the replica does alone."""


@pytest.mark.parametrize("failure_class", LOSSES)
@pytest.mark.parametrize(("strategy", "role"), TABLE)
def test_a_loss_restarts_all_or_the_replica_alone_as_the_table_says(
    strategy: Strategy, role: Role, failure_class: PodFailureClass
) -> None:
    assert _restarts_all(strategy, role, failure_class) is (failure_class in TABLE[strategy, role])


@pytest.mark.parametrize("failure_class", LOSSES)
@pytest.mark.parametrize(("strategy", "role"), TABLE)
def test_the_restart_scope_of_the_run_policy_overrides_the_table(
    strategy: Strategy, role: Role, failure_class: PodFailureClass
) -> None:
    assert _restarts_all(strategy, role, failure_class, scope=RestartScope.JOB)
    assert not _restarts_all(strategy, role, failure_class, scope=RestartScope.POD)


def test_the_table_has_every_strategy_and_role() -> None:
    servers_elsewhere = {(strategy, Role.PS) for strategy in Strategy if strategy is not Strategy.PARAMETER_SERVER}
    assert set(TABLE) == {(strategy, role) for strategy in Strategy for role in Role} - servers_elsewhere


def _restarts_all(
    strategy: Strategy, role: Role, failure_class: PodFailureClass, *, scope: RestartScope = RestartScope.AUTO
) -> bool:
    made = job(strategy=str(strategy), runPolicy={"restartScope": str(scope)})
    return requires_full_restart(spec_of(made), PodEnd(pod(made, f"{role}-0"), failure_class, LATEST))
