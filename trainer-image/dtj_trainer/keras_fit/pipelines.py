"""What a pipeline of tf.data is made of, seen without reading it. Imports TensorFlow."""

import inspect
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.compat import private

MOST_BYTES = 2**20
"""Of a tensor that are looked at: of whole rows, from all over it."""
_MOST_ROWS = 1024
_SEEDS = ("_seed", "_seed2", "_name")
_NOT_COMPARED = re.compile("seed2?|token|metadata|config_proto|_.*")
"""Attributes of an operation: chance, and what counts in one process."""
_CHANCE = re.compile("Random|Normal(?!iz)|Multinomial|StatefulUniform|DistortedBoundingBox")
_BY_FILES = re.compile(
    r"_*((Parallel)?(Map|FlatMap|Interleave)|Filter|Prefetch|Options|(Parallel|Padded)?Batch|MapAndBatch|Shuffle"
    r"|Unbatch|Restructured|IgnoreErrors|ParseExample|DenseTo(Ragged|SparseBatch)|TensorSlice"
    r"|TFRecord|TextLine|FixedLengthRecord)Dataset(V\d)?"
)
"""Of which the parts of single files, together, are what they are of all files."""
_READS = re.compile("RecordDataset|TextLineDataset")
"""Of which TensorFlow gives each worker some of the files: not of CsvDataset."""
_BATCHES = re.compile("_(Parallel)?BatchDataset")
_AS_MANY_BATCHES = re.compile("_(Options|Prefetch|Shuffle|Cache)Dataset")
_AS_MANY = re.compile("_(Options|Prefetch|Shuffle|Cache|(Parallel)?Map)Dataset")
"""Steps that give as many elements as they get; a function may make others of the examples of a batch."""
_SERVICE = "_DataServiceDataset"


def steps_of(dataset: Any) -> Iterator[Any]:
    """The steps of a pipeline, each one a dataset, from its end to its sources."""
    yield dataset
    for before in _before(dataset):
        yield from steps_of(before)


def _before(step: Any) -> Sequence[Any]:
    """The steps whose elements one takes; of a reader of files, also where TensorFlow does not say so, their names."""
    names = getattr(step, "_filenames", None)
    return [names] if isinstance(names, tf.data.Dataset) else private(step, "_inputs", library="tensorflow")()


def name_of(step: Any) -> str:
    """The name of a step as users call it, about."""
    return _name(type(step).__name__)


def _name(kind: str) -> str:
    words = re.sub(r"^_+|Dataset(V\d)?$", "", kind)
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", words).lower()


def not_by_files(dataset: Any) -> str:
    """The name of a step for which each worker must have all files; nothing where each may have a part of them."""
    steps = list(steps_of(dataset))
    batches = [step for step in steps if "Batch" in type(step).__name__ and "Unbatch" not in type(step).__name__]
    other = [step for step in steps if not _BY_FILES.fullmatch(type(step).__name__)]
    return next((name_of(step) for step in [*other, *batches[1:]]), "")


def examples_of(dataset: Any, *, part: bool) -> int | None:
    """How many examples the batches of a pipeline hold; None where it does not say so.

    Args:
        part: whether it is a part that `shard` gives; then those of all parts.
    """
    batches = _after(_AS_MANY_BATCHES, dataset)
    if not _BATCHES.fullmatch(type(batches).__name__):
        return None
    drops = bool(private(batches, "_drop_remainder", library="tensorflow"))
    examples = private(batches, "_inputs", library="tensorflow")()[0]
    if part:
        shard = _after(_AS_MANY, examples)
        if drops or type(shard).__name__ != "_ShardDataset":
            return None
        examples = private(shard, "_inputs", library="tensorflow")()[0]
    count = int(examples.cardinality())
    size = int(private(batches, "_batch_size", library="tensorflow")) if drops else 1
    return count // size * size if count >= 0 else None


def _after(passes: re.Pattern[str], step: Any) -> Any:
    """The last step of a pipeline that is none of these."""
    while passes.fullmatch(type(step).__name__):
        step = private(step, "_inputs", library="tensorflow")()[0]
    return step


def of_service(dataset: Any) -> bool:
    """Whether they come from a service of tf.data."""
    return any(type(step).__name__.startswith(_SERVICE) for step in steps_of(dataset))


def may_differ(dataset: Any) -> bool:
    """Whether the same pipeline may give each worker other examples: of a service, or of a Python function."""
    operations = (node.op for step in steps_of(dataset) for node in _nodes_of(step))
    return of_service(dataset) or any(operation.endswith("PyFunc") for operation in operations)


def reads_files(dataset: Any) -> bool:
    """Whether TensorFlow can divide them by files."""
    return any(_reads(step) for step in steps_of(dataset))


def few_files(dataset: Any, workers: int) -> bool:
    """Whether a worker would have none if TensorFlow divided them by files; False where their number is not known."""
    names = [before for step in steps_of(dataset) if _reads(step) for before in _before(step)]
    return any(0 <= int(one.cardinality()) < workers for one in names)


def _reads(step: Any) -> bool:
    return any(_READS.search(one) for one in (type(step).__name__, *(node.op for node in _nodes_of(step))))


def draws(dataset: Any) -> bool:
    """Whether a function changes examples at random: several calls at a time do it in any order."""
    operations = (node.op for step in steps_of(dataset) for node in _nodes_of(step))
    return any(_CHANCE.search(one) and one != "RandomShuffle" for one in operations)


def in_any_order(dataset: Any) -> str:
    """The name of a step that gives the examples in the order in which they are ready; nothing where none does."""
    for step in steps_of(dataset):
        if getattr(step, "_deterministic", None) == "false":
            return name_of(step)
        for node in _nodes_of(step):
            if "deterministic" in node.attr and node.attr["deterministic"].s == b"false":
                return _name(node.op)
    return ""


def interleave(original: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
    """The interleaved data, which remember whether they come in any order; TensorFlow's own other steps do."""
    interleaved = original(dataset, *args, **kwargs)
    asked = inspect.signature(original).bind(dataset, *args, **kwargs).arguments.get("deterministic")
    # One call at a time is in order whatever is asked for.
    if asked is not None and not asked and "Parallel" in type(interleaved).__name__:
        interleaved._deterministic = "false"
    return interleaved


def _nodes_of(step: Any) -> Iterator[Any]:
    for function in private(step, "_functions", library="tensorflow")():
        graph = function.function.graph.as_graph_def()
        yield from graph.node
        yield from (node for called in graph.library.function for node in called.node_def)


def parts_of(dataset: Any) -> list[tuple[str, int]]:
    """What can be seen of a pipeline without reading it: of each step its name, and a digest.

    Seeds are left out, in a function that draws its constants, too. A file counts by its name without folders and its
    size. Large tensors count by some of their rows; variables, tables and what Python functions do, not at all.
    """
    length = ("number of batches", _digest([int(dataset.cardinality())]))
    return [length, *((name_of(step), _digest(_of_step(step))) for step in steps_of(dataset))]


def _digest(values: Any) -> int:
    return zlib.crc32(json.dumps(list(values), default=str).encode())


def _of_step(step: Any) -> Iterator[Any]:
    yield type(step).__name__
    yield step.element_spec
    for name, value in sorted(vars(step).items()):
        for one in tf.nest.flatten(value) if name not in _SEEDS else ():
            if isinstance(one, tf.Tensor):
                yield name, digest_of(one)
            elif isinstance(one, str | int | float | bytes):
                yield name, one
    for function in private(step, "_functions", library="tensorflow")():
        traced = function.function
        yield from of_graph(traced.graph.as_graph_def())
        yield from (digest_of(one) for one in traced.captured_inputs if isinstance(one, tf.Tensor))


def of_graph(graph: Any) -> Iterator[Any]:
    """The operations of a function, and of those that it calls, without the names and the order of functions."""
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    draws = any(_CHANCE.search(node.op) for nodes in bodies for node in nodes)
    yield from sorted(_digest(one for node in nodes for one in _of_node(node, draws=draws)) for nodes in bodies)


def _of_node(node: Any, *, draws: bool) -> Iterator[Any]:
    yield node.op
    for name, value in sorted(node.attr.items()):
        if not draws and not _NOT_COMPARED.fullmatch(name) and not value.HasField("func"):
            yield name, zlib.crc32(value.SerializeToString(deterministic=True))


def digest_of(tensor: Any) -> int:
    """Of its type, its shape, and of so much of its values as `MOST_BYTES` are."""
    if tensor.dtype in (tf.resource, tf.variant):
        return 0
    seen = f"{tensor.dtype.name}{tensor.shape}".encode()
    if tensor.shape.rank and tensor.shape[0]:
        rows = int(tensor.shape[0])
        size = max(1, int(np.prod(tensor.shape[1:])) * (tensor.dtype.size or 8))
        tensor = tensor[:: max(1, -(-rows // max(1, min(_MOST_ROWS, MOST_BYTES // size))))]
    values = tensor.numpy()
    if tensor.dtype == tf.string:
        return zlib.crc32(b"\0".join([seen, *(_of_text(one) for one in np.ravel(values))]))
    return zlib.crc32(np.ascontiguousarray(values).tobytes(), zlib.crc32(seen))


def _of_text(text: bytes) -> bytes:
    """A text; of the path of a file, what is the same wherever the file lies."""
    try:
        return b"%s %d" % (os.path.basename(text), os.path.getsize(text)) if os.sep.encode() in text else text
    except (OSError, ValueError):
        return text


def noting_first(dataset: Any, note: Callable[[Sequence[int]], None]) -> Any:
    """The same dataset, which notes what is in the first element that is read of it.

    Args:
        note: is given a digest of each tensor of the element; 0 if it has one value alone.
    """

    def digests(*values: Any) -> Any:
        note([_of_values(value) for value in values])
        return np.int64(0)

    @tf.autograph.experimental.do_not_convert
    def look(first: Any, element: Any) -> Any:
        leaves = [one for one in tf.nest.flatten(element, expand_composites=True) if isinstance(one, tf.Tensor)]
        seen = [one for one in leaves if one.dtype not in (tf.resource, tf.variant)]
        looked = tf.cond(first, lambda: tf.numpy_function(digests, seen, tf.int64), lambda: tf.constant(0, tf.int64))
        with tf.control_dependencies([looked]):
            return tf.constant(False), tf.nest.map_structure(
                lambda one: tf.identity(one) if isinstance(one, tf.Tensor) else one, element, expand_composites=True
            )

    return dataset.scan(tf.constant(True), look)


def _of_values(values: Any) -> int:
    flat = np.ravel(values)
    if flat.size == 0 or np.all(flat == flat[0]):
        return 0
    if flat.dtype == object:
        return zlib.crc32(b"\0".join(flat[:_MOST_ROWS]))
    return zlib.crc32(np.ascontiguousarray(flat)[: MOST_BYTES // flat.itemsize].tobytes())
