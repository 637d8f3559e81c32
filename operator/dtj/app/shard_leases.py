"""The leases of the shards, and how operators share them without knowing of each other.

An operator leaves a free lease to those that hold fewer. One that has at least two fewer than another asks it for a
shard, by an annotation on the lease, which the holder reads when it renews it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

from dtj.app.settings import OperatorSettings
from dtj.kube.gateway import Gateway, Keep, everywhere
from dtj.kube.lease import Lease, LeaseSettings

PATIENCE_SECONDS: Final = 2.0
"""A turn in which an operator leaves a free lease to others. It is longer than the time between two attempts."""

TIMES: Final = LeaseSettings(duration=10.0, renew_deadline=7.0, retry=1.5)
"""The shard of an operator that is killed has another one after 15 s: at most ``retry`` until the others see its last
renewal, ``duration``, and PATIENCE_SECONDS; the rest is for slow answers."""


def shard_leases(
    gateway: Gateway, settings: OperatorSettings, *, identity: str, throttled: Callable[[], bool] = lambda: False
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
                settings=TIMES if settings.shards > 1 else LeaseSettings(),
                patience=patience,
                asks=partial(asks, shard),
                shards=settings.shards,
                throttled=throttled,
            )
        )
    return leases


def shard_of(namespace: str, shards: int) -> int:
    """The shard of a namespace, from 0 to ``shards`` - 1: the same in every process and version."""
    return int.from_bytes(sha256(namespace.encode()).digest()[:8], "big") % shards


def namespaces_of(shard: int, shards: int) -> Keep:
    """Says of a namespace whether it belongs to this shard."""
    return everywhere if shards == 1 else lambda namespace: shard_of(namespace, shards) == shard


def turns_to_wait(holders: Sequence[str | None], identity: str) -> int:
    """For how many turns ``identity`` leaves a free shard to others that may hold fewer.

    0 if it holds no shard; 1 if nobody is known to hold fewer, so that somebody takes a shard after one turn.
    """
    held = Counter(holder for holder in holders if holder)
    if identity not in held:
        return 0
    return 1 + held[identity] - min(held.values())


def shard_to_ask_for(holders: Sequence[str | None], identity: str) -> int | None:
    """The shard that ``identity`` asks another operator to release, so that each holds its share.

    ``holders`` are the holders by shard: empty for nobody, None if it is not known yet. The operator with the most
    shards is asked, if it has at least two more. None if there is nobody to ask, or if a shard is free: it comes first.
    """
    if any(not holder for holder in holders):
        return None
    held = Counter(holders)
    most = max(held.values(), default=0)
    if most < held[identity] + 2:
        return None
    return next(shard for shard, holder in enumerate(holders) if held[holder] == most)
