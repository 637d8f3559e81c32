"""What this process is to do, as one frozen value, from the command line and the environment.

Rejects every contradiction that can be seen without TensorFlow. Touches no file and no socket.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dtj_launch.logs import LogOptions
from dtj_launch.rendezvous import Peer
from dtj_trainer.config import cluster, data_options, options, pipeline_layout
from dtj_trainer.config import script as scripts
from dtj_trainer.config.cluster import CHIEF, EVALUATOR, PS, WORKER, Cluster, Task
from dtj_trainer.config.data import DataConfig, ServiceTask
from dtj_trainer.config.entry_points import UserCode, parse_entry_points
from dtj_trainer.config.export_formats import SAVED_MODEL
from dtj_trainer.config.nonfinite import NanPolicy, nan_policy
from dtj_trainer.config.optimizer import Learning, learning
from dtj_trainer.config.options import ParsedArgs
from dtj_trainer.config.pipeline_layout import PIPELINE, Layout
from dtj_trainer.config.script import Script
from dtj_trainer.config.store_url import Location, StorePolicy, default_cache
from dtj_trainer.config.validation import ValidationPolicy, validation_policy
from dtj_trainer.errors import UsageError
from dtj_trainer.registry import DATASETS, TASKS

DEFAULT_BATCH_SIZE = 64
DEFAULT_CHECKPOINT_SECONDS = 30.0
DEFAULT_STALL_SECONDS = 1800.0
DEFAULT_REMOTE_STALL_SECONDS = 300.0
"""Where other processes take the steps, or read the data, and TensorFlow waits for them in silence."""
DEFAULT_OUTPUT = Path("dtj-output")
OWN_LEARNING_RATES = {"adam": 0.001, "sgd": 0.01}
"""For a user's own model: what Keras takes."""


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """Examples in one step: of the whole job, or of each replica."""

    examples: int
    per_replica: bool

    def over(self, replicas: int) -> int:
        """The global batch size of this many replicas.

        Raises:
            UsageError: a global batch with less than one example for each replica.
        """
        if self.per_replica:
            return self.examples * replicas
        if self.examples < replicas:
            raise UsageError(
                f"--batch-size={self.examples}: less than one example for each of {replicas} replicas; "
                f"give at least {replicas}"
            )
        return self.examples


@dataclass(frozen=True, kw_only=True)
class CheckpointPolicy:
    """Where checkpoints are, when they are written, and how many stay. No directory: none are written."""

    directory: Path | None
    """Of a URL, the local copy that is this task's alone."""
    location: Location | None
    every_steps: int | None
    every_seconds: float | None
    keep: int
    store: StorePolicy


@dataclass(frozen=True, kw_only=True)
class Config:
    """One task of one attempt of a job."""

    script: Script | None
    keras_override: bool
    """Whether a script's Keras 3 is adapted to several replicas."""
    job: str
    job_uid: str
    """By it the tasks of a job know each other; empty outside a job."""
    bind_address: str
    """The address that the start gate and the status server listen on; all interfaces where it is empty."""
    attempt: int
    cluster: Cluster
    strategy: str
    task: str
    dataset: str
    """One of those that are shipped; not read where `data.where` is set."""
    data: DataConfig
    user_code: UserCode
    epochs: int
    batch_size: BatchSize
    pipeline: Layout | None
    """Of strategy Pipeline alone."""
    learning: Learning
    seed: int
    steps_per_call: int
    on_nan: NanPolicy
    validation: ValidationPolicy
    logical_cpus: int
    tpu_name: str
    run_eagerly: bool
    checkpoint: CheckpointPolicy
    export_dir: Path | None
    export_location: Location | None
    """Where what is in `export_dir` is copied to; None if it is not a copy."""
    export_formats: tuple[str, ...]
    log_dir: Path | None
    log_location: Location | None
    """Where `log_dir` is copied to; None if it is not a copy."""
    store: StorePolicy
    status_port: int | None
    service_task: ServiceTask | None
    """Set where this process is part of the tf.data service."""
    progress_seconds: float
    log: LogOptions
    start_timeout: float
    """Seconds to wait for the other tasks; the launcher shortens it where it started this task again in its place."""
    restarts_in_place: int
    stall_timeout: float
    stall_timeout_given: bool
    """Whether it is not the default."""

    @property
    def preloads(self) -> bool:
        """Whether this task may find imported what `dtj_trainer.preload` imports.

        A script finds the environment and the modules that it would find without us.
        """
        return not self.script

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
    args = options.read(argv, environ)
    here = cluster.from_environment(environ)
    script = scripts.find(args, here)
    strategy = scripts.strategy(args, here) if script else args.value(options.STRATEGY)
    _check_roles(strategy, here)
    task, user_code = args.value(options.TASK), parse_entry_points(args)
    output = _default_output(script, environ)
    export_formats = args.value(options.EXPORT_FORMATS)
    data = data_options.data_config(args, environ)
    store = StorePolicy(
        cache=args.value(options.STORE_CACHE) or default_cache(), retry_seconds=args.value(options.STORE_RETRY_SECONDS)
    )
    place = partial(_place, store, environ.get("DTJ_JOB_UID", ""), here.task)
    checkpoint = _checkpoint(args, output, place(args.value(options.CHECKPOINT_DIR)), store)
    export_dir, export_location = place(args.value(options.EXPORT_DIR))
    log_dir, log_location = place(args.value(options.LOG_DIR))
    checkpoints = checkpoint.directory is not None
    config = Config(
        script=script,
        keras_override=args.value(options.KERAS_OVERRIDE) == "on",
        job=environ.get("DTJ_JOB_NAME") or "local",
        job_uid=environ.get("DTJ_JOB_UID", ""),
        bind_address=environ.get("DTJ_BIND_ADDRESS", ""),
        attempt=_attempt(environ),
        cluster=here,
        strategy=strategy,
        task=task,
        dataset=_dataset(args, task, user_code),
        data=data,
        user_code=user_code,
        epochs=args.value(options.EPOCHS),
        batch_size=_batch_size(args),
        pipeline=pipeline_layout.read(args, strategy, here),
        learning=learning(args, OWN_LEARNING_RATES if user_code.model else TASKS[task].learning_rates),
        seed=args.value(options.SEED),
        steps_per_call=args.value(options.STEPS_PER_CALL),
        on_nan=nan_policy(args, strategy=strategy, checkpoints=checkpoints, script=script is not None),
        validation=validation_policy(args, strategy=strategy, checkpoints=checkpoints),
        logical_cpus=args.value(options.LOGICAL_CPUS),
        tpu_name=args.value(options.TPU_NAME),
        run_eagerly=args.value(options.RUN_EAGERLY),
        checkpoint=checkpoint,
        export_dir=export_dir or (output and output / "export"),
        export_location=export_location,
        export_formats=export_formats or (SAVED_MODEL,),
        log_dir=log_dir or (output and output / "logs"),
        log_location=log_location,
        store=store,
        status_port=args.value(options.STATUS_PORT),
        service_task=data_options.service_task(here.task, environ),
        progress_seconds=args.value(options.PROGRESS_EVERY),
        log=LogOptions(args.value(options.LOG_FORMAT), args.value(options.LOG_LEVEL)),
        start_timeout=min(args.value(options.START_TIMEOUT), _number_from(environ, "DTJ_REJOIN_SECONDS", math.inf)),
        restarts_in_place=int(_number_from(environ, "DTJ_RESTARTS_IN_PLACE", 0)),
        stall_timeout=args.value(options.STALL_TIMEOUT) or _default_stall_timeout(script, data, strategy),
        stall_timeout_given=args.source(options.STALL_TIMEOUT) is not None,
    )
    _check(config, args)
    return config


def _default_output(script: Script | None, environ: Mapping[str, str]) -> Path | None:
    """Outside a job, a plain run keeps what it makes; in a job, only the manifest says where things may be written."""
    return None if script or environ.get("TF_CONFIG") or environ.get("DTJ_JOB_NAME") else DEFAULT_OUTPUT


def _default_stall_timeout(script: Script | None, data: DataConfig, strategy: str) -> float:
    others_work = data.service or strategy in ("ParameterServer", PIPELINE)
    return DEFAULT_REMOTE_STALL_SECONDS if others_work and not script else DEFAULT_STALL_SECONDS


def _check(config: Config, args: ParsedArgs) -> None:
    """Refuse options that contradict each other."""
    if config.pipeline:
        pipeline_layout.check_batch(config.pipeline, config.batch_size.over(1))
    if config.cluster.task.role == EVALUATOR and not config.script and config.checkpoint.directory is None:
        raise UsageError("evaluator: there is no checkpoint directory to watch; give --checkpoint-dir")
    if args.value(options.EXPORT_FORMATS) and config.export_dir is None:
        raise UsageError(f"{args.source(options.EXPORT_FORMATS)}: no directory to export to; give --export-dir")


def _check_roles(strategy: str, here: Cluster) -> None:
    """That TF_CONFIG has the tasks which the strategy needs, and no others."""
    replicas = here.count(CHIEF) + here.count(WORKER)
    if strategy == "TPU" and len(here.addresses) > 1:
        raise UsageError(
            f"strategy TPU is driven by one process, but TF_CONFIG lists {len(here.addresses)} tasks; use a slice of "
            "one host and one worker"
        )
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


def _dataset(args: ParsedArgs, task: str, user_code: UserCode) -> str:
    name = args.value(options.DATASET)
    kind, known = (
        ("data set", tuple(DATASETS)) if user_code.model else (f"data set of task {task}", TASKS[task].datasets)
    )
    if name is not None and name not in known:
        raise UsageError(f"{args.source(options.DATASET)}: no {kind}; this trainer knows {', '.join(known)}")
    return name or TASKS[task].datasets[0]


def _batch_size(args: ParsedArgs) -> BatchSize:
    global_batch = args.value(options.BATCH_SIZE)
    per_replica = args.value(options.PER_REPLICA_BATCH_SIZE)
    if global_batch and per_replica:
        raise UsageError(
            f"{args.source(options.BATCH_SIZE)} and {args.source(options.PER_REPLICA_BATCH_SIZE)}: give one of the two"
        )
    if per_replica:
        return BatchSize(examples=per_replica, per_replica=True)
    return BatchSize(examples=global_batch or DEFAULT_BATCH_SIZE, per_replica=False)


def _place(
    store: StorePolicy, job_uid: str, task: Task, given: Path | Location | None
) -> tuple[Path | None, Location | None]:
    """The directory that an option names, and the place in an object store that it is a copy of."""
    if isinstance(given, Location):
        return store.local_copy(given, job_uid, str(task)), given
    return given, None


def _checkpoint(
    args: ParsedArgs, output: Path | None, place: tuple[Path | None, Location | None], store: StorePolicy
) -> CheckpointPolicy:
    every_steps = args.value(options.CHECKPOINT_EVERY_STEPS)
    every_seconds = args.value(options.CHECKPOINT_EVERY_SECONDS)
    if every_steps is None and every_seconds is None:
        every_seconds = DEFAULT_CHECKPOINT_SECONDS
    directory, location = place
    return CheckpointPolicy(
        directory=directory or (output and output / "checkpoints"),
        location=location,
        every_steps=every_steps,
        every_seconds=every_seconds,
        keep=args.value(options.CHECKPOINT_KEEP),
        store=store,
    )


def _number_from(environ: Mapping[str, str], variable: str, otherwise: float) -> float:
    """What the launcher reports a restart in place."""
    text = environ.get(variable) or ""
    try:
        return float(text) if text else otherwise
    except ValueError:
        raise UsageError(f"{variable}={text}: not a number; leave it to the launcher, or unset it") from None


def _attempt(environ: Mapping[str, str]) -> int:
    text = environ.get("DTJ_ATTEMPT") or "0"
    if not text.isdecimal():
        raise UsageError(f"DTJ_ATTEMPT={text}: not a whole number; leave it to the operator, or unset it")
    return int(text)
