"""What the API server says of pods before they exist, asked once for jobs whose pods are alike.

A hundred jobs of one template are a hundred equal questions, each of which costs the API server almost as much as a
pod. Only that it has nothing against a pod is kept, and not for long: what it refuses, each job asks for itself, and
is told in words of its own. Should the answer hold no more, the first pod that is created meets the refusal, and no
other is created.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from dtj.api.json import JsonObject
from dtj.kube.gateway import PODS, Gateway, Verdict, dry_run
from dtj.kube.waiting import loop_time

KEPT_SECONDS: Final = 60.0
"""For how long a good answer holds: policies of the cluster may change."""

MAX_KEPT: Final = 256
"""Answers that are kept; the oldest go first."""

_Key: TypeAlias = tuple[str, bytes]
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class _Question:
    """One that was asked; ``answer`` is None where it is no good one."""

    answer: asyncio.Future[Verdict | None] = field(default_factory=asyncio.Future)
    until: float = field(default_factory=lambda: loop_time() + KEPT_SECONDS)


class DryRuns:
    """Asks the API server about pods, each question once in a while."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._asked: OrderedDict[_Key, _Question] = OrderedDict()

    async def ask(self, pod: JsonObject, *, namespace: str, alike: JsonObject | None) -> Verdict:
        """What the API server has against ``pod``. Raises ApiError.

        ``alike`` is what the pod has in common with those for which the answer is the same; None where it has none.
        """
        if alike is None:
            return await dry_run(self._gateway, PODS, namespace=namespace, body=pod)
        key = (namespace, sha256(_encode(alike)).digest())
        known = self._asked.get(key)
        if known is not None and loop_time() < known.until:
            await asyncio.wait([known.answer])
            if (answer := known.answer.result()) is not None:
                return answer
        return await self._ask_first(key, pod)

    def forget(self, namespace: str) -> None:
        """The API server refused a pod there: what it said before may hold no more."""
        for key in [key for key in self._asked if key[0] == namespace]:
            del self._asked[key]

    async def _ask_first(self, key: _Key, pod: JsonObject) -> Verdict:
        question = _Question()
        self._asked[key] = question
        while len(self._asked) > MAX_KEPT:
            self._asked.popitem(last=False)
        good: Verdict | None = None
        try:
            verdict = await dry_run(self._gateway, PODS, namespace=key[0], body=pod)
            good = verdict if not verdict.errors and not verdict.forbidden else None
            return verdict
        finally:
            question.answer.set_result(good)
            if good is None and self._asked.get(key) is question:
                del self._asked[key]
