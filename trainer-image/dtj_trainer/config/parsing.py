"""What this process is to do, as one frozen value, from the command line and the environment.

Rejects every contradiction that can be seen without TensorFlow. Touches no file and no socket.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dtj_launch import communication
from dtj_launch.rendezvous import Peer
from dtj_launch.world import gate_key
from dtj_trainer.config import cluster, data, nonfinite, options, pipeline_layout
from dtj_trainer.config import script as scripts
from dtj_trainer.config.cluster import CHIEF, EVALUATOR, PS, WORKER, Cluster, Task
from dtj_trainer.config.data import DataConfig, ServiceTask
from dtj_trainer.config.entry_points import UserCode
from dtj_trainer.config.execution import (
    DATASETS,
    STRATEGIES,
    TASKS,
    BatchSize,
    Execution,
    Reporting,
    Training,
)
from dtj_trainer.config.optimizer import Learning
from dtj_trainer.config.options import Arguments, Options, options_of
from dtj_trainer.config.outputs import SAVED_MODEL, CheckpointPolicy, InMemory, Outputs
from dtj_trainer.config.pipeline_layout import PIPELINE, Layout
from dtj_trainer.config.script import Script, ScriptOptions
from dtj_trainer.config.store_url import Location, StorePolicy, default_cache
from dtj_trainer.config.validation import ValidationPolicy
from dtj_trainer.errors import UsageError

DEFAULT_STALL_SECONDS = 1800.0
DEFAULT_REMOTE_STALL_SECONDS = 300.0
"""Where other processes take the steps, or read the data, and TensorFlow waits for them in silence."""
DEFAULT_OUTPUT = Path("dtj-output")
OWN_LEARNING_RATES = {"adam": 0.001, "sgd": 0.01}
"""For a user's own model: what Keras takes."""

_PlaceOf = Callable[[str, Path | Location | None], tuple[Path | None, Location | None]]
"""(name below the default directory, what an option says) -> a directory, and the URL that it is a copy of."""

OWNERS: tuple[type[Options], ...] = (
    ScriptOptions, Training, BatchSize, Learning, UserCode, DataConfig, Execution, ValidationPolicy, Layout,
    CheckpointPolicy, Outputs, Reporting,
)  # fmt: skip
"""All options, in the order of `--help`."""


@dataclass(frozen=True, kw_only=True)
class Config(ScriptOptions, Training, Execution, Reporting):
    """One task of one attempt of a job."""

    script: Script | None
    job: str
    job_uid: str
    """Tells jobs of one name apart; empty outside a job."""
    gate_key: str
    """What only the tasks know that start together: of this job, and in an elastic job with the same members."""
    bind_address: str
    """The address that the start gate and the status server listen on; all interfaces where it is empty."""
    status_port: int | None
    """On which `GET /status`, `/metrics` and `/healthz` are served."""
    attempt: int
    cluster: Cluster
    tpu_name: str
    """`local`, for the chips of this host, or `grpc://host:port` of its runtime, several with commas."""
    data: DataConfig
    user_code: UserCode
    batch_size: BatchSize
    pipeline: Layout | None
    """Of strategy Pipeline alone."""
    learning: Learning
    validation: ValidationPolicy
    checkpoint: CheckpointPolicy
    export_dir: Path | None
    export_location: Location | None
    """Where what is in `export_dir` is copied to; None if it is not a copy."""
    export_formats: tuple[str, ...]
    log_dir: Path | None
    log_location: Location | None
    """Where `log_dir` is copied to; None if it is not a copy."""
    store: StorePolicy
    service_task: ServiceTask | None
    """Set where this process is part of the tf.data service."""
    rejoin_seconds: float
    """What the launcher shortens the wait to where it started this task again in its place."""
    restarts_in_place: int
    losses_in_place: int
    """Those restarts in place that a loss made necessary, and no change of members or request to stop."""

    @property
    def looks_often(self) -> bool:
        """Whether all weights are looked at so often that a trace pays: most trainings save a few times only."""
        return bool(self.checkpoint.memory or self.compare_steps)

    @property
    def start_timeout(self) -> float:
        """Seconds to wait for the other tasks."""
        return min(self.start_seconds, self.rejoin_seconds)

    @property
    def stall_timeout(self) -> float:
        """Seconds without a finished step."""
        others_work = self.data.service or self.strategy in ("ParameterServer", PIPELINE)
        default = DEFAULT_REMOTE_STALL_SECONDS if others_work and not self.script else DEFAULT_STALL_SECONDS
        return self.stall_seconds or default

    @property
    def stall_timeout_given(self) -> bool:
        """Whether it is not the default."""
        return self.stall_seconds is not None

    @property
    def preloads(self) -> bool:
        """Whether this task may find imported what `dtj_trainer.preload` imports.

        A script finds the environment and the modules that it would find without us.
        """
        return not self.script

    @property
    def hosts_tpu(self) -> bool:
        """Whether this task serves the chips of its host to the chief, which drives those of all hosts."""
        return self.strategy == "TPU" and bool(self.cluster.count(CHIEF)) and self.cluster.task.role == WORKER

    @property
    def tpu_runtimes(self) -> Mapping[str, Peer]:
        """Where the TPU of this job is reached: name for a person -> host and port. Empty where it is this host's."""
        if self.strategy != "TPU" or "://" not in self.tpu_name:
            return {}
        addresses = (runtime.partition("://")[2].rpartition(":") for runtime in self.tpu_name.split(","))
        return {f"TPU {index}": (host.strip("[]"), int(port)) for index, (host, _, port) in enumerate(addresses)}


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Config:
    """Reads the command line (without the program's name) and the environment; a flag wins over a variable.

    Raises:
        UsageError: the first thing that cannot be, with its source, its value and the remedy.
    """
    args = options.read(argv, environ, OWNERS)
    here = cluster.from_environment(environ)
    own = args.values(Config)
    script = _script(args, here, own)
    if script and "strategy" not in own["given"]:
        # A script may know its strategy without telling us.
        own["strategy"] = here.likely_strategy or STRATEGIES[0]
    strategy = own["strategy"]
    _check_roles(strategy, here)
    user_code = UserCode(**args.values(UserCode))
    input_data = data.data_config(args, environ)
    user_code.check_options(
        task=own["given"].get("task"), dataset=own["given"].get("given_dataset"),
        files=input_data.given.get("where"), strategy=strategy,
    )  # fmt: skip
    _check_dataset(own, user_code)
    outputs = Outputs(**args.values(Outputs))
    store = StorePolicy(cache=outputs.store_cache or default_cache(), retry_seconds=outputs.store_retry_seconds)
    place = partial(_place, store, environ.get("DTJ_JOB_UID", ""), here.task, _default_output(script, environ))
    config = Config(
        **own,
        **_from_environment(environ),
        tpu_name=_tpu_name(environ, strategy, here),
        **_directories(outputs, place),
        script=script,
        cluster=here,
        data=input_data,
        user_code=user_code,
        batch_size=BatchSize(**args.values(BatchSize)),
        pipeline=pipeline_layout.read(args, strategy, here),
        learning=Learning(
            **args.values(Learning),
            rates=OWN_LEARNING_RATES if user_code.model else TASKS[own["task"]].learning_rates,
        ),
        validation=ValidationPolicy(**args.values(ValidationPolicy)),
        checkpoint=_checkpoint(args, place, store, InMemory.read(environ, strategy=strategy, task=here.task)),
        store=store,
        service_task=data.service_task(here.task, environ),
    )
    _check(config, outputs)
    return config


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `Config` that only the operator, the launcher and TensorFlow's variables say."""
    return {
        "job": environ.get("DTJ_JOB_NAME") or "local",
        "job_uid": environ.get("DTJ_JOB_UID", ""),
        "gate_key": gate_key(environ),
        "bind_address": environ.get("DTJ_BIND_ADDRESS", ""),
        "status_port": _status_port(environ),
        "attempt": _attempt(environ),
        "rejoin_seconds": _number_from(environ, "DTJ_REJOIN_SECONDS", math.inf),
        "restarts_in_place": int(_number_from(environ, "DTJ_RESTARTS_IN_PLACE", 0)),
        "losses_in_place": int(_number_from(environ, "DTJ_LOSSES_IN_PLACE", 0)),
    }


def _directories(outputs: Outputs, place: _PlaceOf) -> dict[str, Any]:
    """The fields of `Config` for exports and logs."""
    export_dir, export_location = place("export", outputs.export)
    log_dir, log_location = place("logs", outputs.log)
    return {
        "export_dir": export_dir,
        "export_location": export_location,
        "export_formats": outputs.export_formats or (SAVED_MODEL,),
        "log_dir": log_dir,
        "log_location": log_location,
    }


def _script(args: Arguments, here: Cluster, own: Mapping[str, Any]) -> Script | None:
    every = [one for owner in OWNERS for one in options_of(owner).values()]
    return scripts.find(args, here, every, seed=own["seed"] if "seed" in own["given"] else None)


def _default_output(script: Script | None, environ: Mapping[str, str]) -> Path | None:
    """Outside a job, a plain run keeps what it makes; in a job, only the manifest says where things may be written."""
    return None if script or environ.get("TF_CONFIG") or environ.get("DTJ_JOB_NAME") else DEFAULT_OUTPUT


def _check(config: Config, outputs: Outputs) -> None:
    """Refuse options that contradict each other."""
    checkpoints = config.checkpoint.directory is not None
    if config.on_nan == nonfinite.SKIP:
        nonfinite.check_skip(config.given["on_nan"], strategy=config.strategy, script=config.script is not None)
    if config.communication != communication.AUTO and config.strategy not in communication.STRATEGIES:
        raise UsageError(
            f"{config.given['communication']}: strategy {config.strategy} adds up no gradients of several GPUs; leave "
            f"it out, or use {' or '.join(communication.STRATEGIES)}"
        )
    config.validation.check(strategy=config.strategy, checkpoints=checkpoints)
    if config.pipeline:
        pipeline_layout.check_batch(config.pipeline, config.batch_size.over(1))
    if config.cluster.task.role == EVALUATOR and not config.script and not checkpoints:
        raise UsageError("evaluator: there is no checkpoint directory to watch; give --checkpoint-dir")
    if outputs.export_formats and config.export_dir is None:
        raise UsageError(f"{outputs.given['export_formats']}: no directory to export to; give --export-dir")


def _check_roles(strategy: str, here: Cluster) -> None:
    """That TF_CONFIG has the tasks which the strategy needs, and no others."""
    replicas = here.count(CHIEF) + here.count(WORKER)
    if strategy == "TPU" and len(here.addresses) > 1:
        if here.count(CHIEF) != 1 or here.count(PS):
            raise UsageError(
                f"strategy TPU is driven by one process, but TF_CONFIG lists {len(here.addresses)} tasks; add a chief, "
                "which drives the hosts of the slice from a pod without TPUs, or use a slice of one host and one worker"
            )
        return
    if strategy in ("OneDevice", "Mirrored", "CentralStorage", "TPU"):
        if replicas > 1 or here.count(PS):
            raise UsageError(
                f"strategy {strategy} runs in one process, but TF_CONFIG lists {len(here.addresses)} tasks; "
                "use MultiWorkerMirrored or ParameterServer"
            )
    elif strategy == "MultiWorkerMirrored":
        if not replicas:
            raise UsageError("strategy MultiWorkerMirrored: TF_CONFIG lists no worker; list chief and workers there")
        if here.count(PS):
            raise UsageError("strategy MultiWorkerMirrored: TF_CONFIG lists ps tasks; use strategy ParameterServer")
    elif strategy == PIPELINE:
        pipeline_layout.check_roles(here)
    else:
        for role in (CHIEF, WORKER, PS):
            if not here.count(role):
                raise UsageError(
                    f"strategy ParameterServer: TF_CONFIG lists no {role}; it needs one chief (the coordinator), "
                    "and at least one worker and one ps"
                )


def _check_dataset(own: Mapping[str, Any], user_code: UserCode) -> None:
    name, task = own["given_dataset"], own["task"]
    kind, known = (
        ("data set", tuple(DATASETS)) if user_code.model else (f"data set of task {task}", TASKS[task].datasets)
    )
    if name is not None and name not in known:
        raise UsageError(f"{own['given']['given_dataset']}: no {kind}; this trainer knows {', '.join(known)}")


def _place(
    store: StorePolicy, job_uid: str, task: Task, output: Path | None, name: str, given: Path | Location | None
) -> tuple[Path | None, Location | None]:
    """The directory that an option names, else one of this name in `output`; and the URL that it is a copy of."""
    if isinstance(given, Location):
        return store.local_copy(given, job_uid, str(task)), given
    return given or (output and output / name), None


def _checkpoint(args: Arguments, place: _PlaceOf, store: StorePolicy, memory: InMemory | None) -> CheckpointPolicy:
    values = args.values(CheckpointPolicy)
    directory, location = place("checkpoints", values["place"])
    losses = _seconds_from(args.environ, "DTJ_SECONDS_BETWEEN_LOSSES", math.inf)
    return CheckpointPolicy(
        **values, directory=directory, location=location, store=store, memory=memory, seconds_between_losses=losses
    )


def _tpu_name(environ: Mapping[str, str], strategy: str, here: Cluster) -> str:
    """By the variable that TensorFlow reads; without it, the hosts of the slice that this task drives."""
    hosts = here.peers(WORKER) if strategy == "TPU" and here.task.role == CHIEF else {}
    driven = ",".join(f"grpc://{address}" for _, address in sorted(hosts.items()))
    name = environ.get("TPU_NAME") or driven or "local"
    for runtime in () if name == "local" else name.split(","):
        scheme, _, address = runtime.partition("://")
        host, _, port = address.rpartition(":")
        if scheme != "grpc" or not host or not options.is_port(port):
            raise UsageError(
                f"TPU_NAME={name}: give local, for the chips of this host, or grpc://host:port, several with commas"
            )
    return name


def _number_from(environ: Mapping[str, str], variable: str, otherwise: float) -> float:
    """The number that a variable holds."""
    text = environ.get(variable) or ""
    try:
        return float(text) if text else otherwise
    except ValueError:
        raise UsageError(f"{variable}={text}: not a number; unset it") from None


def _seconds_from(environ: Mapping[str, str], variable: str, otherwise: float) -> float:
    """The seconds that a variable holds: a finite number above 0, or else this one."""
    seconds = _number_from(environ, variable, otherwise)
    if seconds != otherwise and not 0 < seconds < math.inf:
        raise UsageError(f"{variable}={environ[variable]}: give seconds above 0, or unset it")
    return seconds


def _status_port(environ: Mapping[str, str]) -> int | None:
    text = environ.get("DTJ_STATUS_PORT") or ""
    if text and not options.is_port(text):
        raise UsageError(f"DTJ_STATUS_PORT={text}: give a port from 1 to 65535, or unset it")
    return int(text) if text else None


def _attempt(environ: Mapping[str, str]) -> int:
    text = environ.get("DTJ_ATTEMPT") or "0"
    if not text.isdecimal():
        raise UsageError(f"DTJ_ATTEMPT={text}: not a whole number; leave it to the operator, or unset it")
    return int(text)
