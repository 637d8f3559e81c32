"""What a session does before its loop: what `--script` would have prepared, and the strategy. Imports TensorFlow."""

import os
import shutil
import sys
from dataclasses import replace
from typing import Any

from dtj_launch import progress
from dtj_launch.ledger import Ledger
from dtj_launch.progress import ProgressStore
from dtj_launch.status_server import serve_status
from dtj_trainer.config.cluster import EVALUATOR, PS, WORKER
from dtj_trainer.config.parsing import Config, parse
from dtj_trainer.distribution import strategies
from dtj_trainer.errors import UsageError
from dtj_trainer.process import logs
from dtj_trainer.process.ending import leave
from dtj_trainer.process.output_directories import check_outputs
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.start_gate import meet_peers, started_in_time
from dtj_trainer.process.task_context import TaskContext


def remove_older_exports(config: Config) -> None:
    """Empties the local copy of a bucket: an earlier attempt may have left what its script did not finish."""
    if config.export_location and config.export_dir and config.cluster.leads:
        shutil.rmtree(config.export_dir, ignore_errors=True)
        config.export_dir.mkdir(parents=True)


def task_context() -> TaskContext:
    """What `--script` would have prepared."""
    logs.configure_early(os.environ)
    config = parse((f"--script={sys.argv[0] or 'session'}",), os.environ)
    logs.configure(config.log, os.environ, task=config.cluster.task)
    progress_store = ProgressStore(Ledger.kept(os.environ) if config.cluster.leads else None)
    termination = Termination(leave=leave)
    termination.listen_openly()
    if config.status_port:
        serve_status(progress_store, config.status_port, host=config.bind_address)
    progress.publish_on(progress_store)
    check_outputs(config)
    return TaskContext(config=meet_peers(config), progress_store=progress_store, termination=termination)


def made_strategy(context: TaskContext) -> Any:
    """The job's strategy; a parameter server, or a worker of one, serves here and does not return."""
    config = context.config
    role = config.cluster.task.role
    if config.strategy == "ParameterServer" and role in (WORKER, PS):
        from dtj_trainer.distribution import tf_server

        tf_server.serve_cluster(config.cluster, context.progress_store, context.termination)
    if config.hosts_tpu:
        from dtj_trainer.distribution import tpu_server

        tpu_server.serve(config.cluster, context.progress_store, context.termination)
    if config.strategy == "Pipeline":
        raise UsageError(
            "session(): strategy Pipeline cuts a model that the trainer drives; give it one with --model, or another "
            "strategy"
        )
    if role == EVALUATOR:
        return strategies.make_strategy(replace(config, strategy="OneDevice"))
    with started_in_time(config), strategies.peer_loss(config):
        try:
            if config.strategy == "ParameterServer":
                from dtj_trainer.training import parameter_server

                return parameter_server.make_parameter_server_strategy()
            return strategies.make_strategy(config)
        except RuntimeError as error:
            raise UsageError(
                f"session(): strategy {config.strategy} cannot be made ({str(error).splitlines()[0][:100]}); enter "
                "the session before TensorFlow has computed anything",
                restart_may_help=True,
            ) from None
        finally:
            # Once the strategy is there, TensorFlow's own handler is, too, and keeps the signal to itself.
            context.termination.listen_openly()
