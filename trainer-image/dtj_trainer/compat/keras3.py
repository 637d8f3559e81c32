"""Private names of Keras 3, and what tf_keras has in their place. Imports Keras 3.

tf_keras is imported for nobody: it costs 0.2 s. Who asks about a part of it has imported it.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import keras

from dtj_trainer.compat import incompatible, mentions, private, require
from dtj_trainer.compat.tensorflow import components

try:
    from keras.src.backend.common import global_state
    from keras.src.backend.common.masking import get_keras_mask
    from keras.src.losses import loss as loss_module
    from keras.src.losses.losses import LossFunctionWrapper
    from keras.src.random import seed_generator
    from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics, get_loss
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

_SEED = "seed_generator_state"
_MASK = "_keras_mask"
_CALL = "current_call_ctx"


def is_seed(variable: Any) -> bool:
    """Whether a variable of Keras 3 says where a random layer stands."""
    _check_seed()
    return bool(variable.name == _SEED)


@cache
def _check_seed() -> None:
    # By its code: a generator that is made here would be one of the strategy's variables.
    generator = keras.random.SeedGenerator
    require(mentions(generator.__init__, _SEED), f"the state of a SeedGenerator is not called {_SEED}", library="keras")


def draw_unseeded_by(generator: Any) -> None:
    """What Keras 3 draws without a seed asks this generator's `next` from now on."""
    name = private(seed_generator, "GLOBAL_SEED_GENERATOR", library="keras")
    global_state.set_global_attribute(name, generator)
    require(
        seed_generator.global_seed_generator() is generator,
        "what is drawn without a seed does not ask the global generator",
        library="keras",
    )


@contextmanager
def drawing_unseeded_by(generator: Any) -> Iterator[None]:
    """What Keras 3 draws in this thread without a seed asks this generator's `next`."""
    name = private(seed_generator, "GLOBAL_SEED_GENERATOR", library="keras")
    before = global_state.get_global_attribute(name)
    draw_unseeded_by(generator)
    try:
        yield
    finally:
        global_state.set_global_attribute(name, before)


def maker(tensor: Any) -> Any:
    """The call of a layer that made a symbolic tensor."""
    operation, call, _ = private(tensor, "_keras_history", library="keras")
    return private(operation, "_inbound_nodes", library="keras")[call]


def is_layer(layer: Any) -> bool:
    """Whether something is a layer or a model of either Keras."""
    tf_keras = sys.modules.get("tf_keras")
    return isinstance(layer, keras.Layer) or (tf_keras is not None and isinstance(layer, tf_keras.layers.Layer))


def sublayers(layer: Any, *, recursive: bool) -> list[Any]:
    """The layers in a layer or a model of either Keras, without itself.

    Args:
        recursive: with the layers in those.
    """
    library = "keras" if isinstance(layer, keras.Layer) else "tf_keras"
    return list(private(layer, "_flatten_layers", library=library)(include_self=False, recursive=recursive))


# -- how models and layers are called --------------------------------------------------------------------------


def call_arguments(model: Any, *, training: bool) -> dict[str, bool]:
    """The argument `training` for a call of a model of either Keras.

    Nothing for one whose `call` does not take it: Keras' steps do not tell its layers then. A step of its own may.
    """
    takes = not isinstance(model, keras.Layer) or private(model, "_call_has_training_arg", library="keras")
    takes = takes or (isinstance(model, keras.Model) and overrides(model, "train_step"))
    return {"training": training} if takes else {}


def compute_loss_arguments(model: Any, *, training: bool) -> dict[str, bool]:
    """The argument `training` for `compute_loss` of a model; nothing for one that does not take it."""
    takes = private(model, "_compute_loss_has_training_arg", library="keras")
    return {"training": training} if takes else {}


def storage_of(variable: Any) -> Any:
    """What TensorFlow keeps a variable of Keras in."""
    return private(variable, "_value", library="keras")


@contextmanager
def stored_in_part(variables: Sequence[Any], place: int) -> Iterator[None]:
    """Meanwhile, variables of Keras 3 are their copies for one replica.

    Args:
        place: of the replica.
    """
    before = [(one, storage_of(one)) for one in variables if isinstance(one, keras.Variable)]
    for variable, storage in before:
        copies = components(storage)
        variable._value = copies[place % len(copies)]
    try:
        yield
    finally:
        for variable, storage in before:
            variable._value = storage


def mask_of(tensor: Any) -> Any:
    """The mask that goes with a tensor of either Keras, which may be symbolic; None without one."""
    _check_mask(with_tf_keras="tf_keras" in sys.modules)
    return getattr(tensor, _MASK, None)


def put_mask(tensor: Any, mask: Any) -> None:
    """Lets a mask go with a tensor of Keras 3."""
    _check_mask(with_tf_keras=False)
    setattr(tensor, _MASK, mask)


@cache
def _check_mask(*, with_tf_keras: bool) -> None:
    require(mentions(get_keras_mask, _MASK), f"the mask of a tensor is not called {_MASK}", library="keras")
    if with_tf_keras:
        sets = private(sys.modules["tf_keras"].layers.Layer, "_set_mask_metadata", library="tf_keras")
        require(mentions(sets, _MASK), f"the mask of a tensor is not called {_MASK}", library="tf_keras")


def overrides(model: Any, method: str) -> bool:
    """Whether a method of the model is another one than a plain Model's of its Keras: as a rule, the user's own."""
    modules = (sys.modules.get("tf_keras"), keras)
    return all(getattr(type(model), method, None) is not getattr(one.Model, method, None) for one in modules if one)


def separate_losses(layer: Any, losses: Any, ids: Any) -> None:
    """Replaces the list of the losses that a layer adds, and the set of their ids."""
    for name, value in (("_losses", losses), ("_loss_ids", ids)):
        private(layer, name, library="keras")
        # Not by setattr, which would look for variables in it.
        layer.__dict__[name] = value


_changed = threading.local()


@contextmanager
def changing_losses(change: Callable[[list[Any]], list[Any]]) -> Iterator[None]:
    """In this thread, `losses` of a model gives what this makes of the losses that its layers add.

    Args:
        change: called with all of them, in Keras' order; it may read `losses` as Keras gives them.
    """
    _replace_losses()
    before, _changed.by = getattr(_changed, "by", None), change
    try:
        yield
    finally:
        _changed.by = before


@cache
def _replace_losses() -> None:
    losses = vars(keras.Layer).get("losses")
    require(isinstance(losses, property), "Layer.losses is no property", library="keras")
    require("losses" not in vars(keras.Model), "Model has losses of its own", library="keras")
    require(mentions(keras.Model.compute_loss, "losses"), "compute_loss does not add losses", library="keras")

    def changed(layer: Any) -> Any:
        change = getattr(_changed, "by", None)
        if change is None or not isinstance(layer, keras.Model):
            return losses.fget(layer)
        with changing_losses(lambda found: found):
            return change(losses.fget(layer))

    keras.Layer.losses = property(changed, doc=losses.__doc__)


def adders_of_losses(model: Any) -> list[Any]:
    """For each of the losses of a model, in their order: the layer that adds it; None for the penalty of a weight."""
    layers = (model, *sublayers(model, recursive=True))
    adders = [layer for layer in layers for _ in private(layer, "_get_own_losses", library="keras")()]
    return [*adders, *[None] * (len(model.losses) - len(adders))]


@contextmanager
def noting_calls(note: Callable[[Any, Any, Any], object]) -> Iterator[None]:
    """Tells, in this thread, of each call of a layer when it has returned.

    Args:
        note: called with the layer, the arguments and the outputs.
    """
    here, call = threading.get_ident(), keras.Layer.__call__

    def noted(layer: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = call(layer, *args, **kwargs)
        if threading.get_ident() == here:
            note(layer, (args, kwargs), outputs)
        return outputs

    keras.Layer.__call__ = noted
    try:
        yield
    finally:
        keras.Layer.__call__ = call


def replace_moments(layer: Any, moments: Callable[[Any, Any, Any], tuple[Any, Any]]) -> None:
    """Replaces how a BatchNormalization computes its statistics.

    Args:
        moments: (inputs, axes, mask) -> mean and variance.
    """
    _check_moments()
    layer._moments = lambda inputs, mask: moments(inputs, private(layer, "_reduction_axes", library="keras"), mask)


@cache
def _check_moments() -> None:
    kind = keras.layers.BatchNormalization
    private(kind, "_moments", library="keras")
    require(mentions(kind.call, "_moments"), "BatchNormalization.call does not call _moments", library="keras")


# -- what a model is compiled with -----------------------------------------------------------------------------


def build_by(model: Any, examples: Any) -> None:
    """Makes what Keras makes of a model, its losses and metrics with the first batch: inputs, labels and weights."""
    private(model, "_symbolic_build", library="keras")(data_batch=examples)


def losses_of(model: Any) -> Any:
    """The losses that a model is compiled with, as Keras' object; None without any."""
    return private(model, "_compile_loss", library="keras")


def given_losses(losses: Any) -> tuple[Any, Any]:
    """The losses and their weights that made such an object of either Keras, as the user gave them."""
    library, name = ("keras", "_user_loss") if isinstance(losses, CompileLoss) else ("tf_keras", "_user_losses")
    return private(losses, name, library=library), private(losses, "_user_loss_weights", library=library)


def replace_losses(model: Any, losses: Any, weights: Any) -> None:
    """Compiles a model with other losses.

    Args:
        weights: of the losses, as `compile` takes them.
    """
    before = losses_of(model)
    model._compile_loss = type(before)(losses, weights, output_names=before.output_names)


def single_losses(model: Any) -> list[Any]:
    """The losses of the outputs of a built model; none that its own `compute_loss` does not call."""
    losses = losses_of(model)
    return [] if losses is None else list(private(losses, "_flat_losses", library="keras") or [])


def metrics_of(model: Any) -> Any:
    """The metrics that a model is compiled with, as Keras' object; None without any."""
    return private(model, "_compile_metrics", library="keras")


def updated_by_keras(model: Any) -> list[Any]:
    """The metrics of a model of Keras 3 that Keras itself makes and updates: those of losses, and of `compile`."""
    found = [private(model, name, library="keras") for name in ("_loss_tracker", "_compile_metrics", "_compile_loss")]
    tracker, compiled, loss = found
    of_losses = loss.metrics if loss is not None else ()
    return [one for one in (tracker, compiled, *of_losses) if one is not None]


def given_metrics(metrics: Any) -> list[Any]:
    """The metrics and the weighted metrics that made such an object of either Keras, as the user gave them."""
    library = "keras" if isinstance(metrics, CompileMetrics) else "tf_keras"
    return [private(metrics, name, library=library) for name in ("_user_metrics", "_user_weighted_metrics")]


def loss_of(given: Any, labels: Any, outputs: Any, *, rewrite: Callable[[Any], Any]) -> Any:
    """The Loss that Keras 3 makes of what a model is compiled with: a name, a function or a Loss.

    Args:
        rewrite: function -> what is called in its place.
    """
    found = get_loss(given, labels, outputs)
    return LossFunctionWrapper(rewrite(found.fn), name=found.name) if type(found) is LossFunctionWrapper else found


def function_of_loss(loss: Any) -> Any:
    """The function of Keras' own that a Loss of Keras 3 is; None for any other Loss."""
    function = getattr(loss, "fn", None) if isinstance(loss, LossFunctionWrapper) else None
    of_keras = all(getattr(one, "__module__", "").startswith("keras.") for one in (type(loss), function))
    return function if of_keras else None


def of_same_rank(one: Any, other: Any) -> tuple[Any, Any]:
    """Two tensors whose ranks may differ by one, as Keras 3 brings them to the same."""
    same: tuple[Any, Any] = private(loss_module, "squeeze_or_expand_to_same_rank", library="keras")(one, other)
    return same


def options_of_loss(loss: Any) -> Mapping[str, Any]:
    """What a Loss of either Keras hands to its function, such as `from_logits`; nothing for any other loss."""
    library = "keras" if isinstance(loss, LossFunctionWrapper) else "tf_keras"
    if library == "tf_keras" and not (library in sys.modules and isinstance(loss, _wrapper_of_tf_keras())):
        return {}
    options: Mapping[str, Any] = private(loss, "_fn_kwargs", library=library)
    return options


def _wrapper_of_tf_keras() -> Any:
    try:
        losses = importlib.import_module("tf_keras.src.losses")
    except ImportError as error:
        raise incompatible(str(error), library="tf_keras") from None
    return private(losses, "LossFunctionWrapper", library="tf_keras")


_SCALERS = ("scale_loss_for_distribution", "unscale_loss_for_distribution")
_alone = threading.local()


def in_layer() -> bool:
    """Whether a layer or a model of Keras 3 is being called in this thread."""
    return global_state.get_global_attribute(_require_call_context()) is not None


@cache
def _require_call_context() -> str:
    caller = private(keras.Layer, "_get_call_context", library="keras")
    require(mentions(caller, _CALL), f"a call of a layer does not set {_CALL}", library="keras")
    return _CALL


@contextmanager
def as_on_one_replica() -> Iterator[None]:
    """In this thread Keras divides no loss by the number of replicas, and multiplies none by it."""
    _replace_scalers()
    before, _alone.is_so = getattr(_alone, "is_so", False), True
    try:
        yield
    finally:
        _alone.is_so = before


@cache
def _replace_scalers() -> None:
    callers = private(loss_module, "reduce_values", library="keras"), keras.Model.test_step
    for name, caller in zip(_SCALERS, callers, strict=True):
        require(mentions(caller, name), f"losses are not scaled by {name}", library="keras")
        setattr(loss_module, name, partial(_scaled, private(loss_module, name, library="keras")))


def _scaled(scale: Callable[[Any], Any], value: Any) -> Any:
    return value if getattr(_alone, "is_so", False) else scale(value)
