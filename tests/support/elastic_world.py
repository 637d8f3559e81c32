"""A model of a cluster whose pods run dtj-launch: they are told who trains with them, and say when they can join."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import cast

from builders import job
from dtj.api.job import Job
from dtj.api.status import Progress
from dtj.core.actions import Action, TellPod
from dtj.core.observed import Observed, Pod, SeenProgress
from dtj.core.replicas import TRAINING_ROLES, parse_indexes
from dtj.core.status import is_ready
from world import World, running


@dataclass
class ElasticWorld(World):
    """The first member that is ready reports, if ``launched``; a pod can join once it is in ``imported``."""

    launched: bool = True
    imported: set[str] = field(default_factory=set)

    def observed(self) -> Observed:
        seen = super().observed()
        members = [pod for pod in self.pods.values() if is_ready(pod) and _is_member(pod)]
        if self.launched and members:
            leader = min(members, key=lambda pod: (pod.role, pod.index))
            seen = replace(seen, progress=SeenProgress(leader.uid, Progress(phase="Training", world=0), self.now))
        outside = (pod for pod in self.pods.values() if pod.world and not _is_member(pod))
        return replace(seen, waiting=frozenset(pod.uid for pod in outside if pod.uid in self.imported))

    def import_all(self) -> None:
        """The launchers of all pods that run have imported what the program imports."""
        self.imported |= {pod.uid for pod in self.pods.values() if is_ready(pod)}
        self.settle()

    def all_join(self) -> None:
        """All pods run, and can join."""
        self.all_run()
        self.import_all()

    def members(self) -> dict[str, str]:
        """What the living pods that train read; all of them read the same."""
        alive = [pod for pod in self.pods.values() if not pod.terminating and not pod.main_container_ended]
        (known,) = {pod.world.strip() for pod in alive if pod.role in TRAINING_ROLES}
        return dict(json.loads(known)["members"])

    def uids(self) -> dict[str, str]:
        """The living pods."""
        return {pod.name: pod.uid for pod in self.pods.values() if not pod.terminating}

    def _carry_out(self, action: Action) -> None:
        if not isinstance(action, TellPod):
            super()._carry_out(action)
        elif action.name in self.pods and self.pods[action.name].uid == action.uid:
            self.pods[action.name] = replace(self.pods[action.name], world=action.world)


def _is_member(pod: Pod) -> bool:
    members = json.loads(pod.world)["members"] if pod.world else {}
    return pod.index in parse_indexes(members.get(pod.role, ""))


def elastic(
    workers: int, *, least: int = 1, chief: int = 0, spares: int = 0, straggler: str = "", **more: object
) -> Job:
    """An elastic job of MultiWorkerMirrored with up to eight workers."""
    roles = {**({"chief": chief} if chief else {}), "worker": workers}
    bounds: dict[str, object] = {"minReplicas": least, "maxReplicas": 8}
    bounds |= {"spares": spares} if spares else {}
    bounds |= {"onStraggler": straggler} if straggler else {}
    return job(roles=roles, elastic=bounds, **more)  # type: ignore[arg-type]


def trains(made: Job, **more: object) -> ElasticWorld:
    """A world in which all pods of the job run."""
    world = cast("ElasticWorld", running(ElasticWorld(made, **more)))  # type: ignore[arg-type]
    world.settle()
    return world
