"""The leases of the shards, and how operators share them without knowing of each other.

An operator leaves a free lease to those that hold fewer. One that has at least two fewer than another asks it for a
shard, by an annotation on the lease, which the holder reads when it renews it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from dtj.app.settings import OperatorSettings
from dtj.core.shards import shard_to_ask_for, turns_to_wait
from dtj.kube.gateway import Gateway
from dtj.kube.lease import Lease, LeaseSettings

PATIENCE_SECONDS: Final = 2.0
"""A turn in which an operator leaves a free lease to others. It is longer than the time between two attempts."""

TIMES: Final = LeaseSettings(duration=10.0, renew_deadline=7.0, retry=1.5)
"""The shard of an operator that is killed has another one after 15 s: at most ``retry`` until the others see its last
renewal, ``duration``, and PATIENCE_SECONDS; the rest is for slow answers."""


def shard_leases(
    gateway: Gateway,
    settings: OperatorSettings,
    *,
    identity: str,
    throttled: Callable[[], bool] = lambda: False,
) -> list[Lease]:
    """Our candidacy for each shard. The lease of shard 0 has the name that the only lease has without shards."""
    assert settings.lease_namespace is not None
    leases: list[Lease] = []

    def patience() -> float:
        return PATIENCE_SECONDS * turns_to_wait([lease.holder for lease in leases], identity)

    def asks(shard: int) -> bool:
        return shard_to_ask_for([lease.holder for lease in leases], identity) == shard

    for shard in range(settings.shards):
        leases.append(
            Lease(
                gateway,
                namespace=settings.lease_namespace,
                name=settings.lease_name if shard == 0 else f"{settings.lease_name}-{shard}",
                identity=identity,
                settings=TIMES,
                patience=patience,
                asks=partial(asks, shard),
                shards=settings.shards,
                throttled=throttled,
            )
        )
    return leases
