"""Every name of Kubeflow's TFJob that users, its SDK, Katib and Kueue read.

Source: ``pkg/apis/kubeflow.org/v1`` of kubeflow/training-operator v1.9.4.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

GROUP: Final = "kubeflow.org"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "TFJob"
PLURAL: Final = "tfjobs"
SINGULAR: Final = "tfjob"

CONTROLLER: Final = f"{GROUP}/training-operator"
"""The one value of ``spec.runPolicy.managedBy`` that leaves a TFJob to us."""

CONTAINER: Final = "tensorflow"
"""The container that trains."""

PORT: Final = "tfjob-port"
"""The port of a replica; it is added where the container does not name it."""

DEFAULT_PORT: Final = 2222
MASTER: Final = "master"
"""How a chief is spelled in a TFJob that has a ``Master``: in names, labels and TF_CONFIG."""

RECORD: Final = "dtj"
"""The field of a TFJob's status in which the operator keeps its own record."""


class Label:
    """Labels of the pods and Services of a TFJob."""

    JOB_NAME: Final = "training.kubeflow.org/job-name"
    OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
    REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
    REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
    JOB_ROLE: Final = "training.kubeflow.org/job-role"


OPERATOR_NAME: Final = "tfjob-controller"
"""The value of the label operator-name; pods of Kubeflow's other kinds have others."""

MASTER_ROLE: Final = "master"
"""The value of the label job-role: on the chief, or on worker 0 where there is none."""


class Condition(StrEnum):
    """Types of the conditions of a TFJob; the reason of each begins with ``TFJob``."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
