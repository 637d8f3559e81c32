"""Strategies and roles, which the command line offers as choices: without pydantic, so that a Tab is quick."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

MAX_REPLICAS: Final = 10_000
"""Most replicas of a role; larger than the largest Kubernetes cluster has nodes."""


class Strategy(StrEnum):
    """Distribution strategies of ``tf.distribute``, and GPipe's pipeline parallelism."""

    ONE_DEVICE = "OneDevice"
    MIRRORED = "Mirrored"
    CENTRAL_STORAGE = "CentralStorage"
    MULTI_WORKER_MIRRORED = "MultiWorkerMirrored"
    PARAMETER_SERVER = "ParameterServer"
    TPU = "TPU"
    PIPELINE = "Pipeline"


class Role(StrEnum):
    """Task types, spelled as TF_CONFIG spells them."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"
    DISPATCHER = "dispatcher"
    DATA_WORKER = "data-worker"


SINGLE_PROCESS: Final = (Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.CENTRAL_STORAGE)
"""Strategies whose training runs in one process, however many devices it has."""
