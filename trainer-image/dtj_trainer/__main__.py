"""`python -m dtj_trainer`: one replica of a job, from its first line through its role to its exit code.

TensorFlow is imported inside these functions and nowhere before them.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from dtj_launch.ledger import Ledger
from dtj_launch.progress import Phase, ProgressStore, publish_on
from dtj_launch.rendezvous import prove_free
from dtj_launch.status_server import serve_status
from dtj_trainer.compat import require_tf_keras
from dtj_trainer.config import entry_points
from dtj_trainer.config.cluster import CHIEF, DATA_WORKER, EVALUATOR, PS, WORKER
from dtj_trainer.config.data import ServiceTask
from dtj_trainer.config.parsing import Config, parse
from dtj_trainer.config.pipeline_layout import PIPELINE
from dtj_trainer.config.script import Script
from dtj_trainer.errors import TrainerError
from dtj_trainer.process import environment, logs, start_gate, tpu_environment
from dtj_trainer.process.ending import ProcessEnd, end_with, leave
from dtj_trainer.process.output_directories import check_outputs, copied_logs
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.process.watchdog import unattended

# By another name than that of this module, which has none of the package where it is the program.
log = logging.getLogger("dtj_trainer.main")

if TYPE_CHECKING:
    from dtj_trainer.training.reporting import Run


def check(arguments: list[str]) -> dict[str, float | bool]:
    """Ends the process where the command line or the environment cannot be, as `main` would; for the launcher.

    Returns:
        start_timeout, how long this task waits for its peers, in seconds; and preload, as `Config.preloads` says.
    """
    logs.configure_early(os.environ)
    try:
        config = parse(arguments, os.environ)
    except TrainerError as error:
        end_with(error)
    return {"start_timeout": config.start_timeout, "preload": config.preloads}


def main() -> None:
    """Runs to the end of the process."""
    logs.configure_early(os.environ)
    termination = Termination(leave=leave)
    termination.listen()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A log that is read through a pipe shows each line when it is written.
        sys.stdout.reconfigure(line_buffering=True)
    with ProcessEnd():
        config = parse(sys.argv[1:], os.environ)
        logs.configure(config.log, os.environ, task=config.cluster.task)
        launch(config, termination)


def launch(config: Config, termination: Termination) -> None:
    """Does what this task is for, and returns when it is done.

    Raises:
        TrainerError: an end that is not success, expected all the same.
    """
    progress_store = ProgressStore(Ledger.kept(os.environ) if config.cluster.leads else None)
    publish_on(progress_store)
    context = TaskContext(config=config, progress_store=progress_store, termination=termination)
    if config.status_port:
        serve_status(progress_store, config.status_port, host=config.bind_address)
    check_outputs(config)
    entry_points.check(config.user_code)
    tpu_environment.prepare(config, os.environ)
    if config.script and not config.service_task and not config.hosts_tpu:
        _interpret(config.script, context)
    role = config.cluster.task.role
    with nullcontext() if config.script else copied_logs(config):
        environment.prepare(os.environ)
        log.info(f"{config.job}: {config.cluster.task}, attempt {config.attempt}, strategy {config.strategy}")
        logs.log_versions(config.cluster.common_log_level)
        context.startup.lap("python")
        if config.service_task:
            _serve_data(config, config.service_task, progress_store)
        elif role == EVALUATOR:
            _evaluate(context)
        elif config.hosts_tpu:
            _serve_tpu(context)
        elif config.strategy == PIPELINE:
            _pipe(context)
        elif config.strategy != "ParameterServer":
            _train(context)
        elif role == CHIEF:
            _coordinate(context)
        else:
            _serve(context)


def _interpret(script: Script, context: TaskContext) -> NoReturn:
    """Runs a script in place of the trainer's loop, when those are there whom its strategy will look for."""
    from dtj_trainer.user_code import script_runner

    config = context.config
    script_runner.prepare(script, os.environ)
    log.info(f"{config.job}: {config.cluster.task}, attempt {config.attempt}, script {script.name}")
    logs.log_versions(config.cluster.common_log_level)
    script_runner.run(script, replace(context, config=start_gate.meet_peers(config)))


def _train(context: TaskContext) -> None:
    config = context.config
    listener = start_gate.listen(config) if config.strategy == "MultiWorkerMirrored" else None
    if config.strategy == "TPU" and config.cluster.addresses and config.tpu_runtimes:
        start_gate.listen(config)  # as long as this process lives, which the hosts of the TPU outlast
    environment.configure()
    from dtj_trainer.distribution import strategies
    from dtj_trainer.training import synchronous

    context.startup.lap("import")
    if listener:
        config = start_gate.rendezvous_with_peers(config, listener)
    else:
        start_gate.wait_for_roles(config, CHIEF, WORKER)
        config = start_gate.agree_on_communication(config, {})
    with _connecting(context):
        strategy = strategies.make_strategy(config)
    with _prepared(context) as run:
        synchronous.train(run, strategy)


def _coordinate(context: TaskContext) -> None:
    config = context.config
    require_tf_keras("strategy ParameterServer trains models of")
    environment.configure()
    from dtj_trainer.training import parameter_server

    context.startup.lap("import")
    start_gate.wait_for_roles(config, WORKER, PS)
    with _connecting(context):
        strategy = parameter_server.make_parameter_server_strategy()
    with _prepared(context) as run:
        parameter_server.train(run, strategy)


def _serve_data(config: Config, service: ServiceTask, progress_store: ProgressStore) -> None:
    from dtj_trainer.data.service import serve_data

    role = config.cluster.task.role
    with start_gate.naming_port(
        service.port, "DTJ_DATA_SERVICE_PORT" if role == DATA_WORKER else "TF_DATA_SERVICE_ADDRESS", config
    ):
        prove_free(service.port)
    if role == DATA_WORKER:
        start_gate.wait_for_dispatcher(config, service.dispatcher)
    serve_data(config, service, progress_store)


def _pipe(context: TaskContext) -> None:
    config = context.config
    if not config.cluster.leads:
        from dtj_trainer.pipeline_parallel import worker

        start_gate.prove_port_free(config)
        worker.serve_stage(config.cluster, context.progress_store, context.termination, job_uid=config.job_uid)
    environment.configure()
    from dtj_trainer.pipeline_parallel import leader

    context.startup.lap("import")
    start_gate.prove_port_free(config)
    start_gate.wait_for_roles(config, WORKER)
    with _connecting(context):
        leader.connect(config)
    with leader.on_its_cpu(config), _prepared(context) as run:
        leader.train(run)


def _serve(context: TaskContext) -> None:
    from dtj_trainer.distribution import tf_server

    start_gate.prove_port_free(context.config)
    tf_server.serve_cluster(context.config.cluster, context.progress_store, context.termination)


def _serve_tpu(context: TaskContext) -> None:
    from dtj_trainer.distribution import tpu_server

    start_gate.prove_port_free(context.config)
    environment.configure()
    tpu_server.serve(context.config.cluster, context.progress_store, context.termination)


def _evaluate(context: TaskContext) -> None:
    environment.configure()
    from dtj_trainer.training import evaluator

    with _prepared(context, awaited=False) as run:
        evaluator.watch(run)


@contextmanager
def _connecting(context: TaskContext) -> Iterator[None]:
    """While the strategy is made, which meets the other tasks: that has a limit, and can be ended by a signal."""
    from dtj_trainer.distribution import strategies

    context.startup.lap("gate")
    context.progress_store.update(phase=Phase.BUILDING)
    with (
        start_gate.started_in_time(context.config),
        unattended(),
        strategies.peer_loss(context.config),
    ):
        yield
    context.startup.lap("strategy")


@contextmanager
def _prepared(context: TaskContext, *, awaited: bool = True) -> Iterator[Run]:
    """What is to be learned, and from what; while it is in use, the file is named that data fail in.

    To be entered after the strategy is made: it may run TensorFlow.

    Args:
        awaited: whether others wait for this task: they would wait without end for data that block.
    """
    from dtj_trainer.data.source import diagnosing_data_errors
    from dtj_trainer.distribution.stall_watch import data_watch
    from dtj_trainer.training.model import prepare
    from dtj_trainer.training.reporting import Run

    config = context.config
    with data_watch(config) if awaited else nullcontext():
        model, data = prepare(config)
        context.startup.lap("data")
    if awaited and config.data.service is not None:
        start_gate.wait_for_dispatcher(config, config.data.service)
    with diagnosing_data_errors(data):
        yield Run(context=context, model=model, data=data)


if __name__ == "__main__":
    main()
