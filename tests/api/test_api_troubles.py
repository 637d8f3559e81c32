"""An API server that fails: every kind of call meets every kind of trouble, on its way to a real API server.

The operator is a whole process, behind a proxy that lets its first calls of each kind fail (pods created and deleted,
Services created, changed and deleted, the status, events, lists and watches, kopf's too), through a job's life in
which all of them are made; and then all of its calls, for a while. Each life must come to the same end, with each pod
created once and a bounded number of calls.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from dtj.api.names import Condition
from dtj.api.status import JobStatus
from support.api_proxy import ApiProxy, Upstream
from support.job_world import OF_NO_SCHEDULER, JobWorld
from support.loop_thread import LoopThread
from support.operator_process import USER, OperatorProcess, grant
from support.troubles import TROUBLES, Trouble, Troubled
from testbed import ControlPlane

pytestmark = pytest.mark.api

STORM_SECONDS = 15.0
"""For how long no call succeeds."""

CALLS_OF_A_KIND = 40
"""In the storm. More is a hot loop: waits between calls double, or are kopf's of a second, on any machine."""


CALLS_PER_TROUBLE = 4
"""A call that failed is made again, and with it those that came before it in a pass."""

SUFFIXES = ("", "-r1", "-r2", "-r3")


@dataclass(frozen=True)
class Life:
    """What became of a job, and what it cost."""

    status: JobStatus
    created: Counter[str]
    met: Counter[str]
    calls: int
    in_storm: Counter[str]
    """How many calls of each kind were made while each of them met the trouble."""

    log: str


def live(plane: ControlPlane, loop: LoopThread, directory: Path, trouble: Trouble | None) -> Life:
    """A job's life in which an operator makes every kind of call, and meets the trouble with each."""
    namespace = plane.new_namespace()
    grant(plane, namespace)
    troubled = Troubled(trouble)
    upstream = Upstream(plane.url, plane.tls_for(USER))
    proxy = ApiProxy(upstream, trouble=troubled)
    loop.run(proxy.start())
    log = directory / f"{namespace}.log"
    arguments = (f"--namespace={namespace}", "--relist-seconds=5")
    world = JobWorld(plane, namespace)
    try:
        with OperatorProcess(proxy.kubeconfig(directory), *arguments, log=log) as operator:
            suffer(world, proxy, loop)
            calls = len(proxy.calls)
            storm = endure(world, proxy, loop, troubled)
            assert operator.running, log.read_text()
            complete(world)
        return Life(world.job().status, creations(proxy), troubled.met, calls, storm, log.read_text())
    except AssertionError as error:
        last = "\n".join(f"{call} -> {call.answered} (in fact {call.status})" for call in proxy.calls[-20:])
        raise AssertionError(f"{error}\n{log.read_text()}\nthe last calls:\n{last}") from error
    finally:
        loop.run(proxy.close())
        loop.run(upstream.close())
        plane.delete_namespace(namespace)


def suffer(world: JobWorld, proxy: ApiProxy, loop: LoopThread) -> None:
    """A job starts, loses a worker, is suspended and resumed; its operator's watches break on the way."""
    world.submit(template=OF_NO_SCHEDULER)
    run(world, "worker-0", "worker-1")
    world.end_pod("digits-worker-1", exit_code=3)
    run(world, "worker-1", "worker-0-r1", "worker-1-r1")
    loop.call(proxy.cut_watches)
    world.change_spec({"runPolicy": {"suspend": True}})
    world.await_state("Suspended")
    world.await_pods([])
    world.eventually(lambda: none(world.services()))
    world.change_spec({"runPolicy": {"suspend": False}})
    run(world, "worker-0-r2", "worker-1-r2")


def endure(world: JobWorld, proxy: ApiProxy, loop: LoopThread, troubled: Troubled) -> Counter[str]:
    """A worker is lost while no call succeeds. Returns the operator's calls by their kinds."""
    before = len(proxy.calls)
    troubled.storm = True
    loop.call(proxy.cut_watches)
    world.end_pod("digits-worker-1-r2", exit_code=3)
    time.sleep(STORM_SECONDS)
    calls = Counter(call.kind for call in proxy.calls[before:])
    troubled.storm = False
    run(world, "worker-1-r2", "worker-0-r3", "worker-1-r3")
    return calls


def complete(world: JobWorld) -> None:
    world.end_pod("digits-worker-0-r3", exit_code=0)
    world.await_condition(Condition.COMPLETE)


def run(world: JobWorld, *replicas: str) -> None:
    world.await_pods(replicas)
    world.run_pods()
    world.await_state("Running")


def none(found: object) -> None:
    assert not found


def creations(proxy: ApiProxy) -> Counter[str]:
    """How often each pod was created, whatever answer the operator got."""
    return Counter(call.name for call in proxy.calls if call.kind == "create pods" and call.writes and call.took_effect)


@pytest.fixture(scope="module")
def lives(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Life]]]:
    """One life for each trouble, all at the same time: most of a life is waiting."""
    directory = tmp_path_factory.mktemp("troubles")
    everything = (*TROUBLES, None)
    with LoopThread() as loop, ThreadPoolExecutor(len(everything)) as pool:
        yield {name_of(one): pool.submit(live, cluster, loop, directory, one) for one in everything}


def name_of(trouble: Trouble | None) -> str:
    return trouble.name if trouble is not None else "none"


@pytest.mark.parametrize("trouble", TROUBLES, ids=name_of)
def test_every_kind_of_call_meets_trouble_and_the_job_comes_to_its_end(
    trouble: Trouble, lives: dict[str, Future[Life]], record_property: Callable[[str, object], None]
) -> None:
    life, undisturbed = lives[trouble.name].result(), lives["none"].result()
    record_property(
        "report",
        f"{trouble.name}: {life.calls} calls ({undisturbed.calls} without trouble), then {life.in_storm.total()} "
        f"while every one meets it ({STORM_SECONDS:.0f} s)",
    )
    assert {kind for kind in trouble.kinds if not life.met[kind]} == set()
    status = life.status
    assert (status.state, status.attempt, status.restarts.user, status.restarts.total) == ("Succeeded", 4, 2, 2)
    assert life.created == {f"digits-{replica}{r}": 1 for replica in ("worker-0", "worker-1") for r in SUFFIXES}
    assert life.calls <= undisturbed.calls + CALLS_PER_TROUBLE * life.met.total()
    assert max(life.in_storm.values()) <= CALLS_OF_A_KIND, life.in_storm
    assert " ERROR " not in life.log, life.log
    assert "Traceback" not in life.log, life.log
