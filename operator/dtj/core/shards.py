"""Shards: which of them a namespace belongs to, and how operators share them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256


def shard_of(namespace: str, shards: int) -> int:
    """The shard of a namespace, from 0 to ``shards`` - 1: the same in every process and version."""
    return int.from_bytes(sha256(namespace.encode()).digest()[:8], "big") % shards


def namespaces_of(shard: int, shards: int) -> Callable[[str], bool]:
    """Says of a namespace whether it belongs to this shard."""
    return lambda namespace: shard_of(namespace, shards) == shard


def turns_to_wait(holders: Sequence[str | None], identity: str) -> int:
    """For how many turns ``identity`` leaves a free shard to others that may hold fewer.

    None if it holds no shard, and one if nobody is known to hold fewer, so that somebody takes a shard after one turn.
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
