"""The model of a cluster with an API server in between: what is seen of it lags, and what is based on an old version
of the job is refused."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dtj.api.status import JobStatus
from dtj.core.actions import (
    Action,
    BestEffort,
    CreateClaim,
    CreateGang,
    CreatePod,
    CreateService,
    DeleteGang,
    DeleteService,
    PatchStatus,
    Plan,
    RequeueAfter,
    UpdateService,
    UpdateWorkloadStatus,
)
from dtj.core.observed import Observed
from dtj.core.planner import plan
from world import World


@dataclass
class LaggingWorld(World):
    """``seen`` is what the operator's stores hold; :meth:`catch_up` makes them true."""

    seen: Observed = field(init=False)
    lives: int = 1

    def __post_init__(self) -> None:
        self.catch_up()

    def catch_up(self) -> None:
        """The watches deliver all that has happened."""
        self.seen = self.observed()

    def planned(self) -> Plan:
        """What is learned from answers is known at once; what is watched, when it comes."""
        known = replace(
            self.observed(),
            job=self.seen.job,
            pods=self.seen.pods,
            service=self.seen.service,
            claim=self.seen.claim,
            tensorboard=self.seen.tensorboard,
            gang=self.seen.gang,
        )
        return plan(known, self.now)

    def step(self) -> Plan:
        """Plan once from what is seen, and carry out what the API server accepts."""
        actions = self.planned()
        for action in actions:
            if isinstance(action, BestEffort):
                self._best_effort(action)
                continue
            if self._is_refused(action):
                break
            if not self._is_void(action):
                self._carry_out(action)
                self.history.append(action)
            if isinstance(action, PatchStatus):
                self.seen = replace(self.seen, job=self.job)
        return actions

    def _best_effort(self, best_effort: BestEffort) -> None:
        """What is refused here stops nothing."""
        match best_effort.action:
            case CreateService():
                fits = self.tensorboard is None
            case DeleteService(uid=uid):
                fits = self.tensorboard is not None and self.tensorboard.uid == uid
            case action:
                fits = not self._is_refused(action)
        if fits:
            self._carry_out(best_effort)
            self.history.append(best_effort)

    def settle(self, *, passes: int = 20) -> None:
        """Plan until there is nothing left to do, with watches that keep up."""
        for _ in range(passes):
            self.catch_up()
            if all(isinstance(action, RequeueAfter) for action in self.step()):
                return
        raise AssertionError(f"no steady state after {passes} passes; last plan: {self.step()}")

    def _is_refused(self, action: Action) -> bool:
        """Conflicts, and names that are taken: the rest of the plan is void then."""
        match action:
            case PatchStatus():
                return self.seen.job != self.job
            case CreatePod(name=name):
                return name in self.pods
            case CreateService():
                return self.service is not None
            case CreateClaim():
                return self.claim is not None
            case CreateGang():
                return self.gang is not None
            case UpdateService(uid=uid):
                return self.service is not None and self.service.uid != uid
        return False

    def _is_void(self, action: Action) -> bool:
        """What is to be deleted or changed is gone, or another by now: that is no error."""
        match action:
            case DeleteService(uid=uid):
                return self.service is None or self.service.uid != uid
            case UpdateService():
                return self.service is None
            case DeleteGang(uid=uid):
                return self.gang is None or self.gang.uid != uid
            case UpdateWorkloadStatus(version=version):
                return self.gang is None or self.gang.version != version
        return False

    def delete_and_create_again(self) -> None:
        """The job, under the same name; what the first one owned is still there."""
        self.lives += 1
        self.job = replace(
            self.job, uid=f"life-{self.lives}", status=JobStatus(), created_at=self.now, generation=1, deleting=False
        )
        self.verdict = self.refusal = self.status_written_at = self.progress = None
        self.flavors = {}
        self.seen = replace(self.seen, job=self.job)  # its event woke the operator

    def collect_garbage(self) -> None:
        """What has no living owner goes."""
        self.pods = {name: pod for name, pod in self.pods.items() if pod.owner_uid == self.job.uid}
        for kind in ("service", "claim", "tensorboard", "gang"):
            child = getattr(self, kind)
            if child is not None and child.owner_uid != self.job.uid:
                setattr(self, kind, None)
