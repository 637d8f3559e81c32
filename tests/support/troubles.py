"""Troubles that a proxy makes for an operator, and a job's life in which every kind of call is made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web

from dtj.api import names
from support.api_proxy import WRITES, Call, Cut, Forward, refusal

JOBS = names.PLURAL

KINDS = frozenset(
    {
        "create pods",
        "delete pods",
        "create services",
        "patch services",
        "delete services",
        f"patch {JOBS}/status",
        "create events",
        *(f"{verb} {resource}" for verb in ("list", "watch") for resource in (JOBS, "pods", "services")),
    }
)
"""What an operator asks of the API server in the life of a job that restarts, and is suspended and resumed."""


EVERY_VERB = WRITES | {"list", "watch", "get"}


@dataclass(frozen=True)
class Trouble:
    """What a call meets, instead of being carried out or besides."""

    name: str
    answer: Callable[[], web.Response] | None = None
    """What the operator gets; None breaks the connection."""

    takes_effect: bool = False
    """Whether the call is carried out all the same."""

    verbs: frozenset[str] = EVERY_VERB
    """What meets it. API servers do not answer everything with everything."""

    def concerns(self, call: Call) -> bool:
        return call.verb in self.verbs

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of calls that should meet it in a whole life."""
        return frozenset(kind for kind in KINDS if kind.partition(" ")[0] in self.verbs)

    async def befall(self, call: Call, forward: Forward) -> web.StreamResponse:
        if self.takes_effect and call.verb != "watch":
            await forward()
        if self.answer is None:
            raise Cut
        answer = self.answer()
        if call.verb == "watch" and answer.status == HTTPStatus.GONE:
            # As the API server does it: the watch begins well, and its first word is the error.
            return web.Response(text=json.dumps({"type": "ERROR", "object": json.loads(answer.text or "")}) + "\n")
        return answer


TROUBLES = (
    Trouble("409", lambda: refusal(409, reason="Conflict"), verbs=WRITES),
    Trouble("429 with Retry-After", lambda: refusal(429, reason="TooManyRequests", retry_after=1)),
    Trouble("500", lambda: refusal(500, reason="InternalError")),
    Trouble("503", lambda: refusal(503, reason="ServiceUnavailable")),
    Trouble("403", lambda: refusal(403, reason="Forbidden")),
    Trouble("410", lambda: refusal(410, reason="Expired"), verbs=frozenset({"watch"})),
    Trouble("no answer"),
    Trouble("answer lost", takes_effect=True),
)


@dataclass
class Troubled:
    """Makes trouble: with the first calls of each kind, and in a storm with all of them."""

    trouble: Trouble | None
    calls_of_each_kind: int = 2
    storm: bool = False
    met: Counter[str] = field(default_factory=Counter)
    """How often each kind of call met the trouble."""

    async def __call__(self, call: Call, forward: Forward) -> web.StreamResponse:
        kind = call.kind
        if self.trouble is None:
            return await forward()
        if not self.trouble.concerns(call):
            return await forward()
        if self.storm or (kind in KINDS and not call.dry_run and self.met[kind] < self.calls_of_each_kind):
            self.met[kind] += 1
            return await self.trouble.befall(call, forward)
        return await forward()
