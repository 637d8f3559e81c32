"""A request to TensorFlow Serving's REST API, answered from a SavedModel as that server answers it.

The server's binary is in no package registry. What can go wrong between its API and a model is the signature: names,
types and shapes, in both of the API's formats (https://www.tensorflow.org/tfx/serving/api_rest).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def predict(signature: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `POST /v1/models/NAME:predict`: `instances` is the row format, `inputs` the columnar one.

    Raises:
        ValueError: what the server would answer 400 to.
    """
    specs = signature.structured_input_signature[1]
    if ("instances" in request) == ("inputs" in request):
        raise ValueError("give one of instances and inputs")
    rows = "instances" in request
    columns = _from_rows(request["instances"], specs) if rows else _from_columns(request["inputs"], specs)
    if columns.keys() != specs.keys():
        raise ValueError(f"the signature takes {sorted(specs)}, not {sorted(columns)}")
    answers = signature(**{name: _tensor(name, columns[name], spec) for name, spec in specs.items()})
    plain = {name: _plain(value) for name, value in answers.items()}
    if not rows:
        return {"outputs": plain if len(plain) > 1 else next(iter(plain.values()))}
    count = len(next(iter(columns.values())))
    if any(len(values) != count for values in plain.values()):
        raise ValueError("the row format wants as many answers as instances")
    named = [{name: values[row] for name, values in plain.items()} for row in range(count)]
    return {"predictions": named if len(plain) > 1 else [next(iter(row.values())) for row in named]}


def _from_rows(instances: list[Any], specs: Mapping[str, Any]) -> dict[str, list[Any]]:
    if not isinstance(instances, list) or not instances:
        raise ValueError("instances must be a list that is not empty")
    if isinstance(instances[0], dict):
        return {name: [instance[name] for instance in instances] for name in instances[0]}
    if len(specs) != 1:
        raise ValueError("several inputs must be named")
    return {next(iter(specs)): instances}


def _from_columns(inputs: Any, specs: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(inputs, dict):
        return dict(inputs)
    if len(specs) != 1:
        raise ValueError("several inputs must be named")
    return {next(iter(specs)): inputs}


def _tensor(name: str, value: Any, spec: Any) -> Any:
    """JSON knows numbers and text; the signature decides which numbers. Neither is ever made of the other."""
    plain = np.array(value)
    if (plain.dtype.kind in "US") != (spec.dtype == tf.string) or plain.dtype == object:
        raise ValueError(f"{name} must be {spec.dtype.name}")
    if plain.dtype.kind == "f" and spec.dtype.is_integer:
        raise ValueError(f"{name} must be whole numbers")
    tensor = tf.constant(value, spec.dtype)
    if not spec.shape.is_compatible_with(tensor.shape):
        raise ValueError(f"{name} must have shape {spec.shape}, not {tensor.shape}")
    return tensor


def _plain(value: Any) -> Any:
    listed = value.numpy().tolist()
    return [item.decode() for item in listed] if value.dtype == tf.string else listed
