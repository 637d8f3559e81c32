"""Runs one job on this machine, from its first process to its last: the operator's engine over local processes.

It shows nothing and asks nobody: :class:`LocalRun` gives views of the job, and takes the wish to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, fields_of, text
from dtj.api.json import objects as json_objects
from dtj.api.names import KIND, Condition, Label
from dtj.api.spec import JobSpec, RestartPolicy, Role
from dtj.api.status import JobStatus, Progress
from dtj.core.actions import Plan
from dtj.core.observed import Observed, Phase, Pod
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.core.replicas import Replica
from dtj.engine import progress
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.gateway import JOBS
from dtj.kube.job_body import job_from_object
from dtj.kube.waiting import loop_time
from dtj.local.gateway import LocalGateway
from dtj.local.kubelet import Kubelet
from dtj.local.machine import thread_defaults
from dtj.local.objects import Objects, timestamp
from dtj.local.pod_command import Command, command_of
from dtj.local.ports import HOST, LocalNetwork
from dtj.local.run_directory import STOPPED, LocalDirectories, RunDirectory
from dtj.local.run_record import Recorder, keep
from dtj.local.scaling import asked
from dtj.local.trainer import Trainer
from dtj.local.view import RunView, newest_pods, run_view

VIEW_INTERVAL: Final = 0.1
"""Seconds between two views."""

PROGRESS_INTERVAL: Final = 0.5
"""Seconds between two questions to a replica, which has this long to answer:"""

PROGRESS_TIMEOUT: Final = 1.0


class End(Enum):
    """How a run ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    INVALID = "Invalid"
    """This machine cannot run the job as it is written; the condition Invalid says why."""

    STOPPED = STOPPED
    """By :meth:`LocalRun.stop`, before the job had an end of its own."""


class Result(msgspec.Struct, frozen=True, rename="camel"):
    """What the trainer says of a finished training; what it does not know is None."""

    accuracy: float | None = None
    mean_absolute_error: float | None = msgspec.field(name="mean_absolute_error", default=None)
    loss: float | None = None
    steps: int | None = None
    first_step: int = 0
    """Where this start of the run began: 0, or the step of the checkpoint that it resumed."""
    examples_per_second: float | None = None
    """The average of the steps alone: without compilation, checkpoints and validations."""
    duration_seconds: float | None = None
    """With them."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """The end of a run: the job's last status and view, and the trainer's result where it wrote one."""

    end: End
    status: JobStatus
    view: RunView
    result: Result | None


class LocalRun:
    """One job on this machine. Make it within a running event loop, then await :meth:`run` once.

    ``body`` is the job as an API server would store it; ``environ`` the runner's own environment; ``command`` what
    started the run, for its record.
    """

    def __init__(
        self,
        body: JsonObject,
        *,
        directory: RunDirectory,
        network: LocalNetwork,
        trainer: Trainer,
        environ: Mapping[str, str],
        command: tuple[str, ...] = (),
    ) -> None:
        body = with_interactive_defaults(body)
        job = Job.from_object(body)
        assert job.spec is not None, "the manifest was checked"
        self._body = body
        self._job = job
        self._spec: JobSpec = job.spec
        self._directory = directory
        self._network = network
        self._trainer = trainer
        self._environ = environ
        self._command = command
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()

    def stop(self) -> None:
        """Ask the processes to save and to end, and then end the run."""
        self._stop.set()

    def kill(self) -> None:
        """End the processes at once, and then the run."""
        self._stop.set()
        self._kill.set()

    async def run(self, show: Callable[[RunView], None]) -> FinishedRun:
        """Run the job to its end; ``show`` gets a view every now and then. An error is a defect."""
        objects = Objects()
        finished: FinishedRun | None = None
        recorder = Recorder(self._directory.record, trainer=self._trainer, command=self._command)

        def record_and_show(view: RunView) -> None:
            recorder.see(view)
            show(view)

        try:
            finished = await self._run(objects, record_and_show)
            return finished
        finally:
            recorder.end()
            # The controller is asked for nothing more after a stop: in its last status the job still runs.
            stopped = finished is None or finished.end is End.STOPPED
            keep_objects(objects, self._directory.objects, stopped_at=timestamp() if stopped else None)

    async def _run(self, objects: Objects, show: Callable[[RunView], None]) -> FinishedRun:
        async with asyncio.TaskGroup() as group:
            kubelet = self._kubelet(objects, group)
            gateway = LocalGateway(objects, kubelet, environ=self._environ)
            engine = self._engine(gateway)
            running = RunningJob(engine, kubelet, self._job, self._spec, self._network)
            body = await gateway.create(JOBS, namespace=self._job.namespace, body=self._body)
            engine.feed.put(job_from_object(body))
            group.create_task(engine.run(), name="engine")
            looking = group.create_task(running.ask_for_progress(), name="progress")
            while not (running.over or self._stop.is_set()):
                await self._scale_as_asked(gateway, engine)
                show(running.view())
                await _wait(self._stop, VIEW_INTERVAL)
            await self._end_processes(kubelet, running, show)
            looking.cancel()
            engine.stop()
        view = replace(running.view(), state=running.end.value)
        show(view)
        return FinishedRun(running.end, running.status, view, read_result(self._directory.result))

    async def _scale_as_asked(self, gateway: LocalGateway, engine: Engine) -> None:
        """Do what an API server and a watch do with ``kubectl scale``."""
        workers, now = asked(self._directory), engine.state.jobs.get(self._job.key)
        spec = now.job().spec if now is not None else None
        if workers is None or spec is None or spec.replicas(Role.WORKER) == workers:
            return
        patch: JsonObject = {"spec": {"replicaSpecs": {"worker": {"replicas": workers}}}}
        body = await gateway.patch(JOBS, namespace=self._job.namespace, name=self._job.name, patch=patch)
        engine.feed.put(job_from_object(body))

    async def _end_processes(self, kubelet: Kubelet, running: RunningJob, show: Callable[[RunView], None]) -> None:
        """End what still runs: all of it after a stop, and after the job's own end what its policy left running. Each
        process has the grace period of its pod."""
        kubelet.terminate()
        while kubelet.running:
            if self._kill.is_set():
                kubelet.kill()
            show(replace(running.view(), state="Stopping"))
            await asyncio.sleep(VIEW_INTERVAL)

    def _kubelet(self, objects: Objects, group: asyncio.TaskGroup) -> Kubelet:
        defaults = thread_defaults(self._spec, self._environ)

        def command(pod: JsonObject) -> Command:
            return command_of(pod, trainer=self._trainer, environ=self._environ, defaults=defaults)

        def release_ports(pod: JsonObject) -> None:
            labels = dig(pod, "metadata", "labels")
            self._network.release(Replica(Role(text(dig(labels, Label.ROLE))), int(text(dig(labels, Label.INDEX)))))

        return Kubelet(objects, group=group, directory=self._directory, command_of=command, before_start=release_ports)

    def _engine(self, gateway: LocalGateway) -> Engine:
        return Engine(
            gateway,
            plan=self._plan,
            platform=self._platform(),
            instance="local",
            namespaces=(self._job.namespace,),
            settings=EngineSettings(workers=1, relist_every=None),
        )

    def _platform(self) -> Platform:
        """This machine; accelerators in the manifest are accepted, TensorFlow finds the ones that are here."""
        # ``tensorboard --logdir`` shows the curves of a run's folder.
        return Platform(
            network=self._network,
            directories=LocalDirectories(self._directory),
            bind_address=HOST,
            inline_addresses=None,
            tensorboard=False,
        )

    def _plan(self, observed: Observed, now: datetime) -> Plan:
        """The operator's plan, until a person has asked to stop: what ends after that is no failure."""
        return () if self._stop.is_set() else plan(observed, now)


class RunningJob:
    """What there is to see of the run: the engine's stores, and the replicas' own words."""

    def __init__(self, engine: Engine, kubelet: Kubelet, job: Job, spec: JobSpec, network: LocalNetwork) -> None:
        self._engine = engine
        self._kubelet = kubelet
        self._first = job
        self._spec = spec
        self._network = network
        self._began = loop_time()
        self._progress: dict[Replica, Progress] = {}

    @property
    def _job(self) -> Job:
        record = self._engine.state.jobs.get(self._first.key)
        return record.job() if record is not None else self._first

    @property
    def status(self) -> JobStatus:
        return self._job.status

    @property
    def over(self) -> bool:
        """Whether nothing more will come of the job by itself."""
        return self.status.terminal or self.status.is_true(Condition.INVALID)

    @property
    def end(self) -> End:
        """How it ended; asked when it has."""
        if self.status.is_true(Condition.COMPLETE):
            return End.SUCCEEDED
        if self.status.is_true(Condition.FAILED):
            return End.FAILED
        return End.INVALID if self.status.is_true(Condition.INVALID) else End.STOPPED

    def view(self) -> RunView:
        """The run as it is now."""
        job = self._job
        return run_view(
            job,
            job.spec or self._spec,
            pods=self._pods(),
            progress=self._progress,
            elapsed=loop_time() - self._began,
            started=self._kubelet.begun,
        )

    async def ask_for_progress(self) -> NoReturn:
        """Keep the newest word of each replica, until cancelled."""
        while True:
            asked = self._status_ports()
            answers = await asyncio.gather(*map(fetch_progress, asked.values()))
            self._progress |= {replica: word for replica, word in zip(asked, answers, strict=True) if word is not None}
            await asyncio.sleep(PROGRESS_INTERVAL)

    def _pods(self) -> Iterable[Pod]:
        return self._engine.state.pods.of(self._job).values()

    def _status_ports(self) -> dict[Replica, int]:
        return {
            replica: self._network.status_port(role=replica.role, index=replica.index)
            for replica, pod in newest_pods(self._pods()).items()
            if pod.phase is Phase.RUNNING
        }


async def fetch_progress(port: int) -> Progress | None:
    """How far the replica with this status port is. Silence is no error: a user's own program has no such port."""
    return Progress.from_object(progress.decoded(await progress.fetch(HOST, port, timeout=PROGRESS_TIMEOUT)))


def with_interactive_defaults(body: JsonObject) -> JsonObject:
    """The manifest for a run that somebody watches: it starts at once, stays until its end has been read, and an error
    is shown rather than tried again, unless the manifest says how often.

    The replicas are then never restarted after an error. A limit of 0 restarts would end the run in the same way, but
    the reason would be that a limit is exceeded that nobody has set.
    """
    spec = fields_of(dig(body, "spec"))
    policy = dict(fields_of(spec.get("runPolicy")))
    for field in ("suspend", "ttlSecondsAfterFinished", "scheduling"):
        policy.pop(field, None)
    others = {key: value for key, value in spec.items() if key != "managedBy"}
    roles = spec.get("replicaSpecs")
    if "backoffLimit" not in policy and isinstance(roles, dict):
        others["replicaSpecs"] = {
            name: {**fields_of(role), "restartPolicy": str(RestartPolicy.NEVER)} for name, role in roles.items()
        }
    return {**body, "spec": {**others, "runPolicy": policy}}


def keep_objects(objects: Objects, file: Path, *, stopped_at: str | None = None) -> None:
    """Write down what there was, for ``dtj report``.

    ``stopped_at`` is when the run was stopped before the job had an end of its own.
    """
    items = [_stopped(item, stopped_at) if stopped_at and item.get("kind") == KIND else item for item in objects.ever()]
    keep(file, {"apiVersion": "v1", "kind": "List", "items": items})


def _stopped(job: JsonObject, at: str) -> JsonObject:
    """The job with a status that says that its run was stopped, and when."""
    status = fields_of(dig(job, "status"))
    conditions = [
        {**condition, "status": "False", "reason": End.STOPPED.value, "message": "the run was stopped"}
        if condition.get("type") == Condition.PODS_READY
        else condition
        for condition in json_objects(status.get("conditions"))
    ]
    ended: JsonObject = {"state": End.STOPPED.value, "completionTime": at, "conditions": [*conditions]}
    return {**job, "status": {**status, **ended}}


def read_result(file: Path) -> Result | None:
    """The trainer's result, or None where there is none that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Result)
    except (OSError, msgspec.DecodeError):
        return None


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event, but not longer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
