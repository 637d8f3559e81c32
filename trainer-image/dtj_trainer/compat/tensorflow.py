"""Private names of TensorFlow. Imports it."""

import functools
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from dtj_trainer.compat import incompatible, mentions, private, replace, require

try:
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
    from tensorflow.python.autograph.impl import api
    from tensorflow.python.distribute import cross_device_utils, values
    from tensorflow.python.eager import context, executor
    from tensorflow.python.eager.polymorphic_function import autograph_util
    from tensorflow.python.framework import random_seed
    from tensorflow.python.ops import (
        cond,
        gen_random_ops,
        gen_stateful_random_ops,
        gen_stateless_random_ops,
        gen_stateless_random_ops_v2,
    )
except ImportError as error:
    raise incompatible(str(error), library="tensorflow") from None

_SUMS = ("all_reduce", "batch_all_reduce", "all_reduce_indexed_slices")
_OF_SUMMED = ("_dense_var_to_tensor", "value", "read_value", "assign", "assign_add", "assign_sub")
_CHANCE = ("Random", "TruncatedNormal", "Multinomial", "RngReadAndSkip")
"""Words in the names of operations that draw numbers."""
_CALLED = ("f", "then_branch", "else_branch")
"""Attributes of operations that name what they call."""
_MERGES = "_use_merge_call"
_KEEP_ALIVE = "_KEEP_ALIVE_SECS"
_LIMITS = (
    "service_type",
    "service_leader",
    "heartbeat_timeout_in_ms",
    "cluster_register_timeout_in_ms",
    "coordinated_jobs",
)


def components(variable: Any) -> Sequence[Any]:
    """The parts of a variable on the devices of this process."""
    distributed = isinstance(variable, tf.distribute.DistributedValues)
    return list(private(variable, "values", library="tensorflow")) if distributed else [variable]


def values_here(variables: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Each variable of Keras 3 with its value on the first device of this process.

    To convert a variable to a tensor may ask all other processes for their parts of it, and wait for them.
    """
    return [(variable, tf.convert_to_tensor(components(variable.value)[0])) for variable in variables]


@contextmanager
def summed_variables_here() -> Iterator[None]:
    """Meanwhile, a variable that is summed over the replicas when it is read is the one of this process's first device.

    Outside of a replica, such a variable cannot be added to, and to read it asks all other processes.
    """
    kind = private(values, "SyncOnReadVariable", library="tensorflow")

    def here(variable: Any) -> Any:
        return components(variable)[0]

    def by(name: str) -> Callable[..., Any]:
        return lambda variable, *given, **more: getattr(here(variable), name)(*given, **more)

    instead = {"_get": here, **{name: by(name) for name in _OF_SUMMED}}
    before = {name: private(kind, name, library="tensorflow") for name in instead}
    for name, function in instead.items():
        setattr(kind, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(kind, name, function)


def parts_of_replica(tensor: Any, *, known: Callable[[Any], bool] = lambda _: False) -> Iterator[Any]:
    """What a tensor of a graph is made of that each replica has of its own: examples, and numbers drawn by chance.

    What is made of constants, variables and the inner dimensions of examples is the same on each replica. Looks into
    the functions that are called, and the branches of `tf.cond`; of loops it knows what they are given.

    Args:
        known: whether a tensor is known to be the same on each replica.
    """
    waiting, seen = [tensor], set()
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen or known(tensor):
            continue
        seen.add(id(tensor))
        if isinstance(tensor, tf.__internal__.EagerTensor):
            if tensor.dtype in (tf.resource, tf.variant):
                yield tensor
            continue
        operation = tensor.op
        captures = getattr(tensor.graph, "captures", ()) if operation.type == "Placeholder" else ()
        if outers := [outer for outer, one in captures if one is tensor]:
            waiting += outers
        elif called := _called(operation):
            waiting += operation.inputs[:1] if "If" in operation.type else ()
            for graph in called:
                given = operation.inputs[len(operation.inputs) - len(graph.inputs) :]
                outer = {id(one): value for one, value in zip(graph.inputs, given, strict=True)}
                for part in parts_of_replica(graph.outputs[tensor.value_index], known=known):
                    if id(part) in outer:
                        waiting.append(outer[id(part)])
                    else:
                        yield part
        elif operation.type in ("Const", "ReadVariableOp") or _is_inner_dimension(operation):
            continue
        elif not operation.inputs or any(word in operation.type for word in _CHANCE):
            yield tensor
        else:
            waiting += operation.inputs


def _is_inner_dimension(operation: Any) -> bool:
    """Whether it gives one dimension of a tensor, and not its first: replicas differ in the number of examples."""
    if operation.type != "StridedSlice" or operation.inputs[0].op.type != "Shape":
        return False
    rank, place = operation.inputs[0].op.inputs[0].shape.rank, tf.get_static_value(operation.inputs[1])
    return bool(rank and place is not None and place.size == 1 and int(place[0]) % rank)


def _called(operation: Any) -> list[Any]:
    """The graphs that an operation calls and whose outputs it has."""
    names = [operation.get_attr(one).name for one in _CALLED if one in operation.node_def.attr]
    return [private(operation.graph, "_get_function", library="tensorflow")(name).graph for name in names]


def strategy_of(generator: Any) -> Any:
    """The strategy in whose scope a `tf.random.Generator` was made; None: in no one's."""
    return private(generator, "_distribution_strategy", library="tensorflow")


def separate_mirrored_strategies() -> None:
    """Gives what each MirroredStrategy sends keys of its own, from now on, as for each fold of a cross-validation.

    With TensorFlow's own, which begin anew with each strategy, what has another shape than that of the first one ends
    with "Shape mismatch in the collective instance".
    """
    private(tf.distribute.MirroredStrategy, "_collective_key_base", library="tensorflow")
    # A strategy has a key for each group of its devices, of which there are a few.
    bases = itertools.count(step=1000)

    def make(original: Any, strategy: Any, *args: Any, **kwargs: Any) -> None:
        strategy._collective_key_base = next(bases)
        original(strategy, *args, **kwargs)

    replace(tf.distribute.MirroredStrategy, "__init__", make, library="tensorflow")


def configure_coordination(
    *, leader: str, heartbeat_seconds: float, register_seconds: float, jobs: Mapping[str, int]
) -> None:
    """Sets the coordination service up as MultiWorkerMirroredStrategy would, but with other time limits.

    Args:
        leader: the job of the task that carries the service, which is its first.
        jobs: name -> tasks.
    """
    job = private(coordination_config_pb2, "CoordinatedJob", library="tensorflow")
    configure = private(_context(), "configure_coordination_service", library="tensorflow")
    try:
        configure(
            service_type="standalone",
            service_leader=f"/job:{leader}/replica:0/task:0",
            heartbeat_timeout_in_ms=round(heartbeat_seconds * 1000),
            cluster_register_timeout_in_ms=round(register_seconds * 1000),
            coordinated_jobs=[job(name=name, num_tasks=tasks) for name, tasks in jobs.items()],
        )
    except TypeError as error:
        raise incompatible(str(error), library="tensorflow") from None


def forget_executors_in_silence() -> None:
    """What was computed for a task that is lost leaves no traceback in the log.

    TensorFlow waits for an executor when it forgets it, and raises there once more what the coordinator has raised.
    Python prints such an error with its traceback, and goes on.
    """
    before = sys.unraisablehook
    forget = private(executor.Executor, "__del__", library="tensorflow")

    def report(problem: Any) -> None:
        if not (problem.object is forget and isinstance(problem.exc_value, tf.errors.OpError)):
            before(problem)

    sys.unraisablehook = report


def computes_alone() -> bool | None:
    """Whether TensorFlow of this process has begun to compute without the other workers of its job.

    It cannot join them any more then: MultiWorkerMirroredStrategy has to be made before the first operation. None: it
    has computed nothing yet. Starts nothing.
    """
    made = private(context, "context_safe", library="tensorflow")()
    if made is None or not private(made, "_initialized", library="tensorflow"):
        return None
    return private(made, "_collective_ops_server_def", library="tensorflow") is None


def note_sums(noted: Callable[[], None]) -> None:
    """Calls it whenever a sum over several workers is taken, or is made part of a graph."""
    launcher = private(cross_device_utils, "CollectiveReplicaLauncher", library="tensorflow")

    def replaced(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def reduce(*args: Any, **kwargs: Any) -> Any:
            if not computes_alone():
                noted()
            return original(*args, **kwargs)

        return reduce

    for name in _SUMS:
        setattr(launcher, name, replaced(private(launcher, name, library="tensorflow")))


def wait_at_barrier(name: str, *, seconds: float) -> None:
    """Waits until all tasks of the coordination service are here.

    Raises:
        tf.errors.OpError: one of them is gone, or the time is over.
    """
    private(_context(), "wait_at_barrier", library="tensorflow")(name, round(seconds * 1000))


def set_key_value(name: str, text: str) -> None:
    """Sets a text at the coordination service, for any task to read.

    Raises:
        tf.errors.OpError: the service is gone, or has a value of this name.
    """
    private(_context(), "set_config_key_value", library="tensorflow")(name, text)


def get_key_value(name: str, *, seconds: float) -> str:
    """Returns what a task has set, and waits for it for so long.

    Raises:
        tf.errors.OpError: the service is gone, or the time is over.
    """
    text: str = private(_context(), "get_config_key_value", library="tensorflow")(name, round(seconds * 1000))
    return text


def forget_coordinator_after(seconds: int) -> None:
    """Sets after how long servers drop the variables of a coordinator that they hear nothing of.

    To be called before the context connects, which is when it is read.
    """
    check_keep_alive()
    setattr(context, _KEEP_ALIVE, seconds)


def check_keep_alive() -> None:
    """Makes sure that `forget_coordinator_after` has an effect."""
    private(context, _KEEP_ALIVE, library="tensorflow")
    connect = private(context.Context, "ensure_initialized", library="tensorflow")
    require(
        mentions(connect, _KEEP_ALIVE), f"Context.ensure_initialized does not use {_KEEP_ALIVE}", library="tensorflow"
    )


def check_coordination() -> None:
    """Makes sure of what the functions for the coordination service need, without one."""
    private(coordination_config_pb2, "CoordinatedJob", library="tensorflow")(name="worker", num_tasks=1)
    configure = private(context.Context, "configure_coordination_service", library="tensorflow")
    missing = set(_LIMITS) - set(inspect.signature(configure).parameters)
    require(not missing, f"configure_coordination_service has no {', '.join(sorted(missing))}", library="tensorflow")
    for name in ("wait_at_barrier", "set_config_key_value", "get_config_key_value"):
        private(context.Context, name, library="tensorflow")


def convert_in_graphs(function: Callable[..., Any], *, itself: bool = True) -> Callable[..., Any]:
    """The function as AutoGraph converts it for a graph, by the settings that hold here.

    Args:
        itself: whether it is converted, or only what it makes graphs of, such as the functions of a dataset.
    """
    autograph = private(private(tf, "__internal__", library="tensorflow"), "autograph", library="tensorflow")
    status = private(autograph, "control_status_ctx", library="tensorflow")()
    converted: Callable[..., Any] = private(autograph, "tf_convert", library="tensorflow")(
        function, status, convert_by_default=itself
    )
    return converted


@contextmanager
def updating_alone(strategy: Any) -> Iterator[None]:
    """Meanwhile, in a replica's step, a strategy lets each replica update variables without the others."""
    before = private(strategy.extended, _MERGES, library="tensorflow")
    setattr(strategy.extended, _MERGES, lambda: False)
    try:
        yield
    finally:
        setattr(strategy.extended, _MERGES, before)


FUNCTION = type(tf.function(lambda: None))
"""What `tf.function` makes."""
CONDITIONS = cond
"""The module in which `tf.cond` and what AutoGraph makes of an `if` find `cond`."""


def body_of(function: Any) -> Callable[..., Any] | None:
    """What a `tf.function` computes, to be called in a graph or eagerly; None if XLA compiles it by itself."""
    compiled, converts = (private(function, name, library="tensorflow") for name in ("_jit_compile", "_autograph"))
    if compiled:
        return None
    body: Callable[..., Any] = function.python_function
    if not converts or tf.executing_eagerly():
        return body
    converted = private(autograph_util, "py_func_from_autograph", library="tensorflow")(body)
    # Whatever holds for the code that calls it.
    anew: Callable[..., Any] = private(api, "call_with_unspecified_conversion_status", library="tensorflow")(converted)
    return anew


def replace_reductions(
    strategy: Any,
    wrap: Callable[[Callable[..., Any], Callable[..., Any]], tuple[Callable[..., Any], Callable[..., Any]]],
) -> None:
    """Replaces what a strategy sums over its replicas with.

    Args:
        wrap: (reduce_to, batch_reduce_to) -> what comes in their place.
    """
    extended = strategy.extended
    found = [private(extended, name, library="tensorflow") for name in ("reduce_to", "batch_reduce_to")]
    extended.reduce_to, extended.batch_reduce_to = wrap(*found)


def _context() -> Any:
    return private(context, "context", library="tensorflow")()


_DRAWS: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "normal": ((gen_random_ops, "random_standard_normal"),),
    "truncated_normal": ((gen_random_ops, "truncated_normal"),),
    "uniform": ((gen_random_ops, "random_uniform"),),
    "integers": ((gen_random_ops, "random_uniform_int"),),
    "by_key": (
        (gen_stateless_random_ops_v2, "stateless_random_normal_v2"),
        (gen_stateless_random_ops_v2, "stateless_truncated_normal_v2"),
        (gen_stateless_random_ops_v2, "stateless_random_uniform_v2"),
        (gen_stateless_random_ops_v2, "stateless_random_uniform_int_v2"),
        (gen_stateless_random_ops_v2, "stateless_random_uniform_full_int_v2"),
    ),
    "shuffle": ((gen_random_ops, "random_shuffle"), (gen_stateless_random_ops_v2, "stateless_shuffle")),
    "seeds": ((random_seed, "get_seed"),),
    "state": ((gen_stateful_random_ops, "rng_read_and_skip"),),
    "other": (
        (gen_random_ops, "multinomial"),
        (gen_random_ops, "random_gamma"),
        (gen_random_ops, "random_poisson_v2"),
        (gen_random_ops, "parameterized_truncated_normal"),
        (gen_stateless_random_ops, "stateless_multinomial"),
        (gen_stateless_random_ops, "stateless_random_binomial"),
        (gen_stateless_random_ops, "stateless_random_poisson"),
        (gen_stateless_random_ops, "stateless_parameterized_truncated_normal"),
        (gen_stateless_random_ops_v2, "stateless_random_gamma_v3"),
        (gen_stateful_random_ops, "stateful_random_binomial"),
        (gen_stateful_random_ops, "non_deterministic_ints"),
    ),
}
"""What all of `tf.random`, `tf.nn`, `keras.random` and `tf.random.Generator` come to, by what they draw."""


def replace_draws(**replacements: Callable[..., Any]) -> None:
    """Replaces operations that draw numbers, in all threads and for good.

    Args:
        replacements: for some kinds of `_DRAWS`; called with the operation that it replaces, and its arguments.
    """
    for kind, replacement in replacements.items():
        for module, name in _DRAWS[kind]:
            original = private(module, name, library="tensorflow")
            setattr(module, name, functools.wraps(original)(functools.partial(replacement, original)))


@contextmanager
def replacing_draws(*, in_all_threads: bool = False, **replacements: Callable[..., Any]) -> Iterator[None]:
    """Replaces, in this thread, the operations that draw numbers.

    Args:
        in_all_threads: also in others, such as those of replicas.
        replacements: one for each kind of `_DRAWS`; called with the operation that it replaces, and its arguments.
    """
    here = threading.get_ident()

    def of_thread(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            if not in_all_threads and threading.get_ident() != here:
                return original(*args, **kwargs)
            return replacement(original, *args, **kwargs)

        return draw

    before = [
        (module, name, private(module, name, library="tensorflow"), replacements[kind])
        for kind, draws in _DRAWS.items()
        for module, name in draws
    ]
    for module, name, original, replacement in before:
        setattr(module, name, of_thread(original, replacement))
    try:
        yield
    finally:
        for module, name, original, _ in before:
            setattr(module, name, original)
