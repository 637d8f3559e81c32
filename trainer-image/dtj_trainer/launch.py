"""From a checked configuration to a running task: status, directories, start gate, strategy, and then its role.

TensorFlow is imported inside these functions and nowhere before them.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from dtj_trainer import runtime, status_server
from dtj_trainer.cluster import CHIEF, EVALUATOR, PS, WORKER
from dtj_trainer.config import Config
from dtj_trainer.ending import end_with
from dtj_trainer.errors import PeerLost, UsageError
from dtj_trainer.gate import Doorbell, PeersMissing, wait_for_peers
from dtj_trainer.gpipe.layout import PIPELINE
from dtj_trainer.outputs import check_outputs
from dtj_trainer.progress import Board, Phase
from dtj_trainer.registry import TASKS
from dtj_trainer.signals import Termination
from dtj_trainer.watchdog import Watchdog

if TYPE_CHECKING:
    from dtj_trainer.run import Run


def launch(config: Config, termination: Termination) -> None:
    """Does what this task is for, and returns when it is done.

    Raises:
        TrainerError: an end that is not success, expected all the same.
    """
    board = Board()
    if config.status_port:
        status_server.serve(board, config.status_port)
    check_outputs(config)
    runtime.prepare(os.environ)
    role = config.cluster.task.role
    print(f"{config.job}: {config.cluster.task}, attempt {config.attempt}, strategy {config.strategy}")
    if role == EVALUATOR:
        _evaluate(config, board, termination)
    elif config.strategy == PIPELINE:
        _pipe(config, board, termination)
    elif config.strategy != "ParameterServer":
        _train(config, board, termination)
    elif role == CHIEF:
        _coordinate(config, board, termination)
    else:
        _serve(config, board)


def _train(config: Config, board: Board, termination: Termination) -> None:
    doorbell = _ring(config) if config.strategy == "MultiWorkerMirrored" else None
    run = _run(config, board, termination)
    from dtj_trainer import strategies, synchronous

    _wait_for_peers(config, CHIEF, WORKER)
    if doorbell:
        doorbell.close()
    board.update(phase=Phase.BUILDING)
    with _started_in_time(config), strategies.peer_loss(config.cluster):
        strategy = strategies.make_strategy(config)
    synchronous.train(run, strategy)


def _coordinate(config: Config, board: Board, termination: Termination) -> None:
    run = _run(config, board, termination)
    from dtj_trainer import parameter_server, strategies

    _wait_for_peers(config, WORKER, PS)
    board.update(phase=Phase.BUILDING)
    with _started_in_time(config), strategies.peer_loss(config.cluster):
        strategy = parameter_server.make_strategy()
    parameter_server.train(run, strategy)


def _pipe(config: Config, board: Board, termination: Termination) -> None:
    if not config.cluster.leads:
        from dtj_trainer.gpipe import serving

        _ring(config).close()
        serving.serve(config.cluster, board, termination)
    run = _run(config, board, termination)
    from dtj_trainer import strategies
    from dtj_trainer.gpipe import train

    _ring(config).close()
    _wait_for_peers(config, WORKER)
    board.update(phase=Phase.BUILDING)
    with _started_in_time(config), strategies.peer_loss(config.cluster):
        train.connect(config)
    train.train(run)


def _serve(config: Config, board: Board) -> None:
    from dtj_trainer import server

    _ring(config).close()
    server.serve(config.cluster, board)


def _evaluate(config: Config, board: Board, termination: Termination) -> None:
    run = _run(config, board, termination)
    from dtj_trainer import evaluator

    evaluator.watch(run)


def _run(config: Config, board: Board, termination: Termination) -> Run:
    """Imports TensorFlow, the task and the data."""
    task = TASKS[config.task]
    runtime.configure(eager=config.run_eagerly)
    from dtj_trainer.data.arrays import Arrays
    from dtj_trainer.run import Run

    return Run(
        config=config,
        task=importlib.import_module(task.module).TASK,
        data=Arrays(importlib.import_module(task.datasets[config.dataset]).load()),
        board=board,
        termination=termination,
        say=print,
    )


def _ring(config: Config) -> Doorbell:
    """Shows the peers that this task is there, and proves that its port is free."""
    address = config.cluster.own_address
    assert address is not None  # a task of a checked cluster
    try:
        return Doorbell(address.port)
    except OSError as error:
        raise UsageError(
            f"TF_CONFIG: port {address.port} of {config.cluster.task}: {os.strerror(error.errno or 0)}; "
            "end the process that has it, or give another port"
        ) from None


def _wait_for_peers(config: Config, *roles: str) -> None:
    peers = {str(task): (a.host, a.port) for task, a in config.cluster.peers(*roles).items()}
    try:
        wait_for_peers(peers, timeout=config.start_timeout, say=print)
    except PeersMissing as missing:
        raise PeerLost(f"start gate: {missing}; see why they did not start, or raise --start-timeout") from None


def _started_in_time(config: Config) -> Watchdog:
    """A peer that passes the gate and then dies would be waited for in silence, and without end."""
    lost = PeerLost(f"the other tasks passed the start gate, but did not connect within {config.start_timeout:g} s")
    return Watchdog(config.start_timeout, lost, end_with=end_with)
