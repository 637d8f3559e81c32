"""Reads a graph model of TensorFlow.js as a browser would, and runs it in TensorFlow."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format


class GraphModel:
    """model.json and its weights: nothing else is looked at, so nothing of the SavedModel can help."""

    def __init__(self, directory: Path) -> None:
        document = json.loads((directory / "model.json").read_text())
        assert document["format"] == "graph-model"
        self.signature: dict[str, Any] = document["signature"]
        graph = json_format.ParseDict(document["modelTopology"], tf.compat.v1.GraphDef())
        weights = _weights(directory, document["weightsManifest"])
        for node in graph.node:
            if node.op == "Const":
                # JavaScript has no 64-bit integers: they travel as 32-bit ones.
                value = weights.pop(node.name).astype(tf.as_dtype(node.attr["dtype"].type).as_numpy_dtype)
                node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        assert not weights, f"weights of no node: {sorted(weights)}"
        wrapped = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
        self._run = wrapped.prune(
            {name: wrapped.graph.get_tensor_by_name(tensor["name"]) for name, tensor in self._tensors("inputs")},
            {name: wrapped.graph.get_tensor_by_name(tensor["name"]) for name, tensor in self._tensors("outputs")},
        )

    def _tensors(self, kind: str) -> list[tuple[str, Any]]:
        return list(self.signature[kind].items())

    def __call__(self, **inputs: Any) -> Mapping[str, Any]:
        """Answers by name."""
        answers: Mapping[str, Any] = self._run(**inputs)
        return answers


def _weights(directory: Path, manifest: list[Any]) -> dict[str, Any]:
    found = {}
    for group in manifest:
        content = b"".join((directory / path).read_bytes() for path in group["paths"])
        at = 0
        for weight in group["weights"]:
            kind = np.dtype(weight["dtype"])
            count = int(np.prod(weight["shape"], dtype=np.int64))
            values = np.frombuffer(content, kind, count, at)
            found[weight["name"]] = values.reshape(weight["shape"])
            at += count * kind.itemsize
        assert at == len(content), "bytes that are no weight"
    return found
