"""A namespace whose operator may be killed, and all that must be the same in the end, however often it was."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import Label
from patience import PATIENCE_SECONDS
from support.job_world import JOBS, JobWorld
from support.lasting_status import lasting
from support.operator_runs import OperatorRuns
from support.pod_environment import config_maps_of
from testbed.rest import RestClient

T = TypeVar("T")

QUIET_SECONDS = 0.5
"""A world in which the operator has not written for so long is at rest; what it still waits for takes longer."""

LAST_WRITE_SECONDS = 15.0
"""After so long a write that some runs have not does not come."""

SHORTEST_POLL_SECONDS = 0.2
LONGEST_POLL_SECONDS = 0.5
"""Not every change is the operator's: the garbage collector's, for example, is found by asking now and then."""


@dataclass(frozen=True)
class End:
    """What must be the same."""

    status: tuple[object, ...]
    conditions: dict[str, tuple[str, str]]
    pods: dict[str, tuple[str, object]]
    """The pods that are there: their owner, and how they are."""

    selectors: dict[str, tuple[str, object]]
    """The Services that are there: their owner, and the attempt that they select."""

    created: Counter[tuple[str, str]]
    """How often each object was created, by its owner and name."""

    without_addresses: tuple[str, ...]
    """The pods that were created before the ConfigMap to which they refer."""

    def differences(self, other: End) -> list[str]:
        """Where ``other`` differs, in words."""
        return [
            f"{part}: {getattr(other, part)}, but without a kill {getattr(self, part)}"
            for part in ("status", "conditions", "pods", "selectors", "created", "without_addresses")
            if getattr(other, part) != getattr(self, part)
        ]


@dataclass(frozen=True)
class RestartableCluster(JobWorld):
    """As a JobWorld, but it looks again when the operator has done something, rather than all the time."""

    runs: OperatorRuns
    client: RestClient
    created_jobs: list[str] = field(default_factory=list)
    """The UIDs of the jobs that were created here, in order."""

    @property
    def api(self) -> RestClient:
        return self.client

    def eventually(self, check: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        poll = SHORTEST_POLL_SECONDS
        while True:
            seen = self.runs.answers
            try:
                return check()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            if not self.runs.await_news(seen, seconds=poll):
                poll = min(2 * poll, LONGEST_POLL_SECONDS)

    def start(self, name: str = "digits", *, roles: dict[str, int] | None = None, **arguments: object) -> Job:
        """Create a job that the scheduler leaves alone: its words would be writes that come when they like."""
        container = {"name": "trainer", "image": "example/trainer:1"}
        template = {"spec": {"schedulerName": "nobody", "containers": [container]}}
        job = self.submit(name, roles=roles, template=template, **arguments)
        self.created_jobs.append(job.uid)
        return job

    def run(self, *replicas: str) -> None:
        """The job's pods are there, become ready, and the job runs."""
        self.await_pods(replicas)
        self.run_pods()
        self.await_state("Running")

    def rest(self) -> None:
        """Wait until nothing is written any more, and for a while until whoever was to die is dead: the write at which
        it dies may not come.
        """
        began = time.monotonic()
        seen = -1

        def moves() -> bool:
            doomed = self.runs.doomed and time.monotonic() < began + LAST_WRITE_SECONDS
            return doomed or self.runs.answers != seen or self.runs.busy

        while moves() and time.monotonic() < began + PATIENCE_SECONDS:
            seen = self.runs.answers
            self.runs.await_news(seen, seconds=QUIET_SECONDS)

    def end(self) -> End:
        """All that must be the same."""
        status = self.job().status
        return End(
            status=lasting(status),
            conditions={condition.type: (condition.status, condition.reason) for condition in status.conditions},
            pods={name: (self._owner(body), dig(body, "status", "phase")) for name, body in self.pods().items()},
            selectors={
                name: (self._owner(body), dig(body, "spec", "selector", Label.ATTEMPT))
                for name, body in self.services().items()
            },
            created=Counter(
                (self._owner(call.object), f"{call.resource} {call.name}")
                for call in self.runs.writes
                # The killed process of a plan knows only large jobs to have ConfigMaps, the others all jobs.
                if call.verb == "create" and call.resource not in ("events", "configmaps") and call.took_effect
            ),
            without_addresses=self._without_addresses(),
        )

    def _without_addresses(self) -> tuple[str, ...]:
        """The pods that were created before the ConfigMap to which they refer."""
        config_maps: set[str] = set()
        found = []
        for call in self.runs.writes:
            if call.verb == "create" and call.took_effect and call.resource == "configmaps":
                config_maps.add(call.name)
            elif call.verb == "create" and call.took_effect and call.resource == "pods":
                found += [call.name] if config_maps_of(call.object) - config_maps else []
        return tuple(found)

    def clear(self) -> None:
        """Leave nothing to who comes next."""
        everything: JsonObject = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        core = f"/api/v1/namespaces/{self.namespace}"
        jobs = f"{JOBS}/namespaces/{self.namespace}/{names.PLURAL}"
        for collection in (jobs, f"{core}/pods", f"{core}/services", f"{core}/configmaps"):
            self.api.request("DELETE", collection, everything)

    def _owner(self, body: JsonObject) -> str:
        uid = text(dig(body, "metadata", "ownerReferences", 0, "uid"))
        return f"job {self.created_jobs.index(uid) + 1}" if uid in self.created_jobs else "nobody"
