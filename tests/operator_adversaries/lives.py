"""Lives of one job in which several things go wrong at once: composed at random, played in memory, and judged.

While something is in its way, a job may wait. When nothing is any more, it runs; it completes, holds nothing then, and
stays as it is, whatever is done to it after its end. Nothing of others is deleted, and nothing is written without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from dtj.api.names import Condition
from dtj.kube.gateway import EVENTS
from log_lines import log_lines
from operator_adversaries.life_cluster import EXPLAINS_WITHIN, LONGEST, SHAPES, LifeCluster
from operator_adversaries.life_troubles import TROUBLES, WORDS
from support.campaigns.model_cluster import Stuck
from support.virtual_time import VirtualTimeLoop

RUNS_WITHIN, ENDS_WITHIN, QUIET = 1200.0, 1200.0, 600.0
"""Seconds: until a job runs that nothing keeps from it, until it has ended, and in which nothing is left to do."""

MOST_WRITES: Final = 6
"""Of all objects, in the quiet time."""


@dataclass(frozen=True)
class Trouble:
    """A key of :data:`TROUBLES`, and from when on it lasts for how many seconds; ``seed`` decides the rest."""

    what: str
    at: float
    seconds: float
    seed: int = 0


@dataclass(frozen=True)
class Life:
    """A job, what happens to it, and what after its end."""

    shape: str = "fixed"
    troubles: tuple[Trouble, ...] = ()
    after: tuple[Trouble, ...] = ()


def compose(seed: int) -> Life:
    """The life of a seed."""
    rng = random.Random(seed)

    def troubles(most: int, within: int) -> tuple[Trouble, ...]:
        drawn = (
            Trouble(
                rng.choice(sorted(TROUBLES)),
                rng.choice((0, rng.randrange(within), rng.randrange(within))),
                rng.choice((5, 40, EXPLAINS_WITHIN, LONGEST)),
                rng.randrange(10**6),
            )
            for _ in range(rng.randrange(most + 1))
        )
        return tuple(sorted(drawn, key=lambda each: each.at))

    return Life(rng.choice(sorted(SHAPES)), troubles(5, 120), troubles(2, 60))


def smallest(life: Life, wrong: list[str]) -> tuple[Life, list[str]]:
    """Leave out of a life what is not needed for something to be wrong."""
    for other in _simpler(life):
        if found := play(other):
            return smallest(other, found)
    return life, wrong


def _simpler(life: Life) -> Iterator[Life]:
    for name in ("troubles", "after"):
        given = getattr(life, name)
        for place in range(len(given)):
            left: dict[str, Any] = {name: (*given[:place], *given[place + 1 :])}
            yield replace(life, **left)
    if life.shape != "fixed":
        yield replace(life, shape="fixed")


def play(life: Life) -> list[str]:
    """Play it from its beginning to its end: what must not be."""
    random.seed(0)  # of waits and their jitter
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:

        async def whole() -> list[str]:
            return await _faults(LifeCluster(SHAPES[life.shape]), life)

        return runner.run(whole())


async def _faults(cluster: LifeCluster, life: Life) -> list[str]:
    """Live; what must not be."""
    cluster.start_operator()
    others = [asyncio.create_task(each) for each in (cluster.kueue(), cluster.launchers())]
    with log_lines("dtj", logging.ERROR) as defects, contextlib.ExitStack() as stack:
        stack.callback(lambda: [each.cancel() for each in others])
        try:
            await asyncio.gather(*(_happens(cluster, each) for each in life.troubles))
            if not cluster.there(cluster.jobs):  # it was deleted while a finalizer held it
                cluster.begin()
            await cluster.until("it runs", cluster.runs_as_wanted, seconds=RUNS_WITHIN)
            found = await _quiet(cluster, "it runs")
            at_the_end = [asyncio.create_task(_happens(cluster, each)) for each in life.after]
            completes = asyncio.create_task(cluster.completes())
            stack.callback(completes.cancel)
            await cluster.until("it ends", lambda: cluster.status().is_true(Condition.COMPLETE), seconds=ENDS_WITHIN)
            await asyncio.sleep(120.0)
            created = len(cluster.api.effects)
            await asyncio.gather(*at_the_end)
            await asyncio.sleep(QUIET)
            found += await _quiet(cluster, "it has ended")
            found += cluster.after_the_end(created)
            await cluster.close()
        except Stuck as error:
            return [str(error), *defects, *cluster.harmed]
    return [*found, *defects, *cluster.harmed]


async def _happens(cluster: LifeCluster, trouble: Trouble) -> None:
    await asyncio.sleep(trouble.at)
    end = TROUBLES[trouble.what](cluster, random.Random(trouble.seed))
    if end is not None:
        cluster.active.append(trouble.what)
        await asyncio.sleep(trouble.seconds)
        mute = cluster.mute
        cluster.active.remove(trouble.what)
        after, words = WORDS.get(trouble.what, (EXPLAINS_WITHIN, ()))
        if trouble.seconds >= after and not mute and cluster.alive:
            cluster.harmed += cluster.unexplained(trouble.what, words)
        end()


async def _quiet(cluster: LifeCluster, when: str) -> list[str]:
    await asyncio.sleep(QUIET)
    before = len(cluster.api.writes())
    await asyncio.sleep(QUIET)
    written = [call for call in cluster.api.writes()[before:] if EVENTS.plural not in call]
    return [f"{len(written)} writes while {when}, such as {written[:3]}"] if len(written) > MOST_WRITES else []
