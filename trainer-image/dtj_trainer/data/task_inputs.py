"""Whether examples are of the kind that a built-in task learns from. Imports TensorFlow."""

from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.config.execution import IMAGES, ROWS, TASKS, TEXTS
from dtj_trainer.data.source import Source
from dtj_trainer.errors import UsageError

_OWN_MODEL = "give a model of your own with --model"


def check_inputs(task: str, spec: Any, of: str) -> None:
    """That a task takes such inputs.

    Args:
        spec: of a batch of inputs.
        of: the option and its value that gave them.

    Raises:
        UsageError: another task does, or none.
    """
    kind, wanted = _kind(spec), TASKS[task].inputs
    if kind != wanted:
        fitting = [name for name, entry in TASKS.items() if entry.inputs == kind]
        remedy = f"give --task={' or --task='.join(fitting)}" if fitting else _OWN_MODEL
        raise UsageError(f"{of}: holds {kind}, and the task {task} takes {wanted}; {remedy}")
    if kind == IMAGES and None not in spec.shape[1:3] and min(spec.shape[1:3]) < 2:
        raise UsageError(
            f"{of}: holds images of {spec.shape[1]}x{spec.shape[2]}, which {task} cannot halve; {_OWN_MODEL}"
        )


def check_labels(task: str, data: Source) -> None:
    """That a task can learn what a source without named classes says of each example.

    Classes are whole numbers from 0 on, or a share for each class; what is predicted is one number.

    Raises:
        UsageError: the labels are something else.
    """
    spec = data.validation(batch=1).element_spec[1]
    if not isinstance(spec, tf.TensorSpec) or spec.dtype == tf.string or spec.shape.rank not in (1, 2):
        raise UsageError(f"{data.name}: gives labels of {spec}, and the task {task} takes one number; {_OWN_MODEL}")
    columns = spec.shape[1] if spec.shape.rank == 2 else 1
    if TASKS[task].predicts_numbers and columns != 1:
        raise UsageError(
            f"{data.name}: gives labels of {columns} numbers, and the task {task} predicts one; choose one of them, or "
            f"{_OWN_MODEL}"
        )


def check_classes(labels: Any, of: str) -> None:
    """That each label is the number of a class, or has a share for each class.

    Args:
        labels: [batch], [batch, 1] or [batch, classes].

    Raises:
        UsageError: one is not.
    """
    values = np.asarray(labels, np.float64).reshape(len(labels), -1)
    if values.shape[1] == 1:
        fitting = (values[:, 0] >= 0) & (values[:, 0] == np.floor(values[:, 0])) & np.isfinite(values[:, 0])
        wanted = "classes are whole numbers from 0 on"
    else:
        fitting = (values >= 0).all(axis=1) & (np.abs(values.sum(axis=1) - 1) < 1e-3)
        wanted = "a label of several numbers is a share for each class, and they add up to 1"
    if not fitting.all():
        first = values[np.argmin(fitting)]
        seen = ", ".join(f"{value:g}" for value in first[:8]) + (", ..." if len(first) > 8 else "")
        raise UsageError(f"{of}: a label is {seen}; {wanted}; change it, choose another --task, or {_OWN_MODEL}")


def _kind(spec: Any) -> str:
    """What a batch of inputs is, in words for a person."""
    if not isinstance(spec, tf.TensorSpec):
        return f"inputs of {type(spec).__name__}"
    if spec.dtype == tf.string:
        return TEXTS if spec.shape.rank == 1 else f"strings of shape {_shape(spec)}"
    return {2: ROWS, 4: IMAGES}.get(spec.shape.rank, f"examples of shape {_shape(spec)}")


def _shape(spec: Any) -> str:
    return f"[{', '.join(str(side) for side in spec.shape[1:])}]"
