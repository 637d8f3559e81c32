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


COLLECTIVE: Final = (Strategy.MULTI_WORKER_MIRRORED, Strategy.TPU, Strategy.PIPELINE)
"""Strategies whose chief and workers can only go on together."""

ELASTIC: Final = (Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER)
"""Strategies that can go on from a checkpoint with another number of workers."""

CLUSTER_ROLES: Final = (Role.CHIEF, Role.WORKER, Role.PS)
"""The roles that appear in TF_CONFIG's ``cluster``; the others appear in nobody's, and nobody depends on their life."""

SINGLE_PROCESS: Final = (Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.CENTRAL_STORAGE)
"""Strategies whose training runs in one process, however many devices it has."""


class Communication(StrEnum):
    """How GPUs add up gradients."""

    AUTO = "Auto"
    NCCL = "NCCL"
    RING = "Ring"


COMMUNICATING: Final = (Strategy.MULTI_WORKER_MIRRORED, Strategy.MIRRORED)
"""Strategies under which GPUs add up gradients by NCCL, or without it."""
