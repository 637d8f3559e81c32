"""What a job learns and from what, a user's or what ships: how the model is built, its loss, its metrics, its data.

Made after the strategy, since measuring data runs TensorFlow, and MultiWorkerMirrored must be made before anything
runs. It comes to the same in every task of a job. Imports TensorFlow.
"""

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer import datasets, two_kerases
from dtj_trainer.autograph import rewritten
from dtj_trainer.compat import keras3
from dtj_trainer.config.cluster import EVALUATOR
from dtj_trainer.config.entry_points import Name
from dtj_trainer.config.execution import TASKS
from dtj_trainer.config.parsing import Config
from dtj_trainer.data.examples_to_try import first_to_try
from dtj_trainer.data.full_batches import Arrays, FullBatches
from dtj_trainer.data.open_files import open_files
from dtj_trainer.data.own_dataset import OwnData
from dtj_trainer.data.service import FromService
from dtj_trainer.data.source import Source, diagnosing_data_errors
from dtj_trainer.data.task_inputs import check_inputs, check_labels
from dtj_trainer.distribution.gathering import is_static
from dtj_trainer.errors import UsageError
from dtj_trainer.export.saved_model import Serving, named_outputs
from dtj_trainer.process.user_function import guarded, load
from dtj_trainer.tasks import shipped
from dtj_trainer.training.global_batch_loss import by_example
from dtj_trainer.training.keras_evaluation import KerasEvaluation
from dtj_trainer.training.layers import (
    adds_losses,
    check_micro_batches,
    check_shared,
    sent_for,
    separate_losses,
    share_examples,
    synchronize_batch_normalization,
    unsaved_state,
)
from dtj_trainer.training.layers_by_parts import Seen
from dtj_trainer.training.loss_division import EXAMPLES, Parts, loss_of_parts
from dtj_trainer.training.metric_values import DefaultMetric
from dtj_trainer.training.objective import CompiledObjective
from dtj_trainer.training.varied_examples import EXAMPLES as TO_LOOK_WITH

log = logging.getLogger(__name__)

Tensor = Any

_CLASSES = ("sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy")
_NUMBERS = (
    "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_logarithmic_error",
    "huber", "log_cosh",
)  # fmt: skip
"""Losses next to which a metric is shown."""
_ACTIVATIONS = ("softmax", "sigmoid")
_GIVES = {
    Parts.VALUES: "gives another number of values",
    Parts.MEAN: "gives one number for a whole batch",
    Parts.SUM: "gives one number for a whole batch",
    Parts.NONE: "is not of single examples",
}
"""What a loss does that does not give each example one."""
_MEANS = ("sum_over_batch_size", "mean", "auto")
BY_EXAMPLE = ("ParameterServer", "Pipeline")
"""Strategies whose loss is the mean of `ModelFactory.compute_metrics` over the examples."""


def prepare(config: Config) -> "tuple[ModelFactory, Source]":
    """The model, and the source that feeds it.

    Raises:
        UsageError: the user's own model or data is not as it has to be.
    """
    data = _data(config)
    with diagnosing_data_errors(data):
        if config.user_code.model:
            name: Name | str = config.user_code.model
            build, serving = load(config.user_code.model), None
        else:
            name = f"--task={config.task}"
            if config.user_code.data:
                check_inputs(config.task, data.input_spec, data.name)
                check_labels(config.task, data)
            fitted = shipped.FIT[config.task](data, _library(config))
            build, data, serving = fitted.build, fitted.data, fitted.serving
        data = _served(config, data)
        model = ModelFactory(
            name, build, data,
            loss=config.user_code.loss, serving=serving, strategy=config.strategy,
            log_level=config.cluster.common_log_level, unchecked=config.unchecked,
        )  # fmt: skip
    return model, data


def seed_alike(config: Config) -> None:
    """Begins all random numbers anew: each model of a run that is built next has the same constants drawn by chance."""
    _library(config).utils.set_random_seed(config.seed)


def _library(config: Config) -> ModuleType:
    """The Keras of the models that ship."""
    return importlib.import_module("tf_keras") if config.strategy == "ParameterServer" else keras


def _data(config: Config) -> Source:
    if config.user_code.data:
        return OwnData(config.user_code.data, load(config.user_code.data), shuffle=config.user_code.shuffle)
    if config.data.where:
        return open_files(
            config, numbers=_predicts_numbers(config), task=None if config.user_code.model else config.task
        )
    return Arrays(datasets.LOAD[config.dataset]())


def _predicts_numbers(config: Config) -> bool:
    """Whether labels are numbers; a loss of Keras' that compares classes has it in its name."""
    if config.user_code.model:
        loss = (config.user_code.loss or "").replace("_", "").lower()
        return "crossentropy" not in loss and loss != "ce"
    return TASKS[config.task].predicts_numbers


def _served(config: Config, source: Source) -> Source:
    """The source by way of the job's tf.data service, where it has one; held-out examples are read here."""
    if config.data.service is None or config.cluster.task.role == EVALUATOR:
        return source
    if isinstance(source, FullBatches):
        log.log(
            config.cluster.common_log_level,
            f"data: batches come from the tf.data service at {config.data.service}, in no repeatable order",
        )
        return FromService(source, config)
    log.log(
        config.cluster.common_log_level,
        f"data: {source.name} is read by each task itself, since the tf.data service cannot divide it",
    )
    return source


class ModelFactory:
    """Builds the model of a run, with its loss and metrics. The same factory serves every strategy."""

    def __init__(
        self,
        name: Name | str,
        build: Callable[[], Any],
        data: Source,
        *,
        loss: str | None,
        serving: Serving | None = None,
        strategy: str = "OneDevice",
        log_level: int = logging.INFO,
        unchecked: Sequence[str] = (),
    ) -> None:
        """Builds the model once, to see what it is.

        Args:
            name: the option that says which model it is, for messages.
            build: makes a new model each time; it may be compiled.
            data: what it learns from.
            loss: a name of Keras' losses, in place of the compiled one.
            serving: how the exported model is called; None: as the model, and it answers `outputs`.
            log_level: of lines that all tasks of a job have in common.
            unchecked: names of layers that replicas share although nothing shows how they divide them.
            strategy: its name; those of BY_EXAMPLE take the mean of what `compute_metrics` says of single examples.

        Raises:
            UsageError: no Keras model, one that does not fit the data, or one of which nobody says the loss.
        """
        self._name = name
        self._build = build
        self._strategy = strategy
        self.log_level, self._unchecked = log_level, unchecked
        self._asked = loss
        self._reported = False
        model = self._new(data)
        if keras3.overrides(model, "train_step"):
            raise UsageError(
                f"{name}: {type(model).__name__} has a train_step of its own, which the trainer's loop does not call; "
                "call Keras' fit in a script, and give --script"
            )
        self._has_another_loss = False
        self._added: list[Parts] = []
        """How each of the losses divides that layers add, where several replicas share the model."""
        self.of_all: Mapping[Any, int] = {}
        """The layers that need the examples of all replicas, with the bytes that an example has there."""
        if isinstance(model, keras.Model):
            inputs = next(iter(data.validation(batch=2)))[0]
            guarded(name, "calling the model", lambda: self._look_at_layers(model, inputs))
        self._loss = _Loss(name, model, data, loss, has_another=self._has_another_loss)
        self.metrics = ("loss", *([self._loss.default.name] if self._loss.default else []))
        """What `compute_metrics` gives, in the order of the output."""
        self.serving = serving or Serving(answer=self._answer)
        self._output_names: list[str] = list(getattr(model, "output_names", None) or [])
        if strategy in BY_EXAMPLE:
            self._check_by_example(model, data, strategy)
            if keras3.overrides(model, "test_step"):
                # The training itself does not call it; the evaluation at the end does.
                self._compile(model)
                if two_kerases.is_of_tf_keras(model):
                    evaluation, sample = self.keras_evaluation(model), [next(iter(data.validation(batch=2)))]
                    guarded(name, "calling its test_step", lambda: evaluation.evaluate(sample))
                else:
                    self.objective(model, data, batch=None)

    def build(self, data: Source) -> Any:
        """A new model; of the Keras that it was made with."""
        model = self._new(data)
        self._compile(model)
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas > 1 and not two_kerases.is_of_tf_keras(model):
            self._share(model, data, replicas)
        return model

    def _share(self, model: Any, data: Source, replicas: int) -> None:
        """Makes sure that the replicas of a synchronous strategy can share the model, and lets them."""
        inputs = first_to_try(data, batch=TO_LOOK_WITH)[0]
        strategy = tf.distribute.get_strategy()
        what, exchanging = str(self._name), not is_static(strategy)
        with ThreadPoolExecutor(1) as outside:  # of the strategy's scope, which is one of its thread
            looking = outside.submit(
                check_shared, model, inputs, what=what, otherwise="use strategy OneDevice", exchanging=exchanging,
                evaluates_alone=True, unchecked=self._unchecked,
            )  # fmt: skip
        seen: Seen = guarded(self._name, "calling the model", looking.result)
        self._added, self.of_all = seen.parts, share_examples(model, seen, strategy)
        separate_losses(model)
        if count := synchronize_batch_normalization(model):
            # Else each replica would keep statistics of its own share of a batch.
            line = f"statistics of {count} BatchNormalization are made over all {replicas} replicas"
            log.log(self.log_level, f"{self._name}: {line}")

    def objective(self, model: Any, data: Source, *, batch: int | None) -> CompiledObjective:
        """The loss and the metrics that a model of Keras 3 was compiled with.

        Args:
            model: of `build`, with its optimizer; in the strategy's scope.
            data: that it learns from.
            batch: global batch size; None: whatever each batch has, on one replica.
        """
        objective = CompiledObjective(
            self._name, model, data, batch=batch, default=self._loss.default, added=self._added
        )
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        for line in [objective.gathered, *sent_for(self.of_all, batch, replicas=replicas)] if batch else []:
            if line:
                log.log(self.log_level, line)
        if batch is not None and (names := objective.not_shown()):
            line = "cannot be shown, because the model updates it when it is called; compile the model with metrics"
            log.log(self.log_level, f"{self._name}: {', '.join(names)} {line}")
        if batch is not None and objective.own_metrics and (line := objective.own_metrics.not_shown):
            log.log(self.log_level, line)
        own = objective.test_step
        if own and own.not_shown and (batch is not None or not self._reported):
            log.log(
                self.log_level,
                f"{self._name}: {type(model).__name__}.test_step returns {', '.join(own.not_shown)} of single batches, "
                "which is not shown; update a metric of the model with it",
            )
            self._reported = True
        return objective

    def keras_evaluation(self, model: Any) -> KerasEvaluation:
        """Evaluates a model of tf_keras."""
        return KerasEvaluation(self._name, model, default=self._loss.default, log_level=self.log_level)

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """The loss and the metric of each example, float32 [batch]: for strategies that take means of these."""
        measured = {"loss": self._loss.each(outputs, labels)}
        if default := self._loss.default:
            measured[default.name] = _mean(default.values(labels, outputs))
        return measured

    def _answer(self, outputs: Tensor) -> dict[str, Tensor]:
        return named_outputs(outputs, self._output_names)

    def _new(self, data: Source) -> Any:
        model = self._build()
        if not isinstance(model, two_kerases.keras_of(model).Model):
            raise UsageError(f"{self._name}: returned a {type(model).__name__}; return a Keras model")
        self._check_keras(model)
        spec = data.input_spec
        if not model.built or not model.weights:
            guarded(self._name, "calling the model", lambda: _build(model, spec))
        if not tf.nest.is_nested(spec):
            shape = getattr(model, "input_shape", None)
            if isinstance(shape, tuple) and shape[:1] not in ((), (None,)):
                raise UsageError(
                    f"{self._name}: the model takes batches of {shape[0]} and no others, as a stateful layer needs; "
                    "the last batch of an evaluation may be smaller, so give the model None for the batch"
                )
            if isinstance(shape, tuple) and not spec.shape.is_compatible_with(shape):
                raise UsageError(
                    f"{self._name}: the model takes {shape}, the examples of {data.name} come as {tuple(spec.shape)}; "
                    "give the model that input, with None for the batch"
                )
        return model

    def _check_keras(self, model: Any) -> None:
        of_tf_keras, served = two_kerases.is_of_tf_keras(model), self._strategy == "ParameterServer"
        if of_tf_keras and not served:
            raise UsageError(
                f"{self._name}: a model of tf_keras, but strategy {self._strategy} needs one of Keras 3; "
                f"{two_kerases.REMEDY}"
            )
        if served and not of_tf_keras:
            raise UsageError(
                f"{self._name}: a model of Keras 3, but this strategy needs one of tf_keras; "
                "make it with `import tf_keras as keras`"
            )

    def _look_at_layers(self, model: Any, inputs: Any) -> None:
        if model.compiled and not model.loss:
            self._has_another_loss = keras3.overrides(model, "compute_loss") or adds_losses(model, inputs)
        if unsaved := unsaved_state(model, inputs):
            raise UsageError(
                f"{self._name}: {unsaved[0]} is a tf.Variable that the model sets when it is called, and Keras 3 saves "
                "only variables of its own; make it with add_weight"
            )

    def _check_by_example(self, model: Any, data: Source, strategy: str) -> None:
        if found := self._loss.more_than_a_mean(model, data):
            raise UsageError(
                f"{self._name}: strategy {strategy} takes the mean of one loss over the examples and knows no {found}; "
                "use strategy MultiWorkerMirrored"
            )
        if strategy == "Pipeline":
            inputs = first_to_try(data, batch=TO_LOOK_WITH)[0]
            guarded(self._name, "calling the model", lambda: check_micro_batches(model, inputs, name=str(self._name)))
        output = next(iter(getattr(model, "outputs", None) or []), None)
        if output is None or not self._loss.known:
            inputs, labels, *_ = first_to_try(data, batch=EXAMPLES)
            output = model(inputs, **keras3.call_arguments(model, training=False))
        if len(output.shape) == 1:
            raise UsageError(
                f"{self._name}: strategy {strategy} takes the mean of one value for each example, and Keras reduces a "
                "loss over the last axis, which is that of the examples where the output has shape [batch]; return an "
                "output of shape [batch, 1], or use strategy MultiWorkerMirrored"
            )
        if not self._loss.known:
            divides = guarded(self._name, "calling its loss", lambda: loss_of_parts(self._loss.values, labels, output))
            if divides is not Parts.EACH:
                raise UsageError(
                    f"{self._name}: strategy {strategy} takes the mean of one value for each example, and its loss "
                    f"{_GIVES[divides]}; return one value for each example, or use strategy MultiWorkerMirrored"
                )
        names = [str(getattr(one, "name", getattr(one, "__name__", one))) for one in two_kerases.given_metrics(model)]
        if names := [name for name in names if name not in ("accuracy", "acc")]:
            log.log(
                self.log_level,
                f"{self._name}: strategy {strategy} shows no {', '.join(names)} during the training, only in the "
                "evaluation at its end",
            )

    def _compile(self, model: Any) -> None:
        """With the loss of the command line, where there is one."""
        if self._asked is None:
            return
        library = two_kerases.keras_of(model)
        optimizer = getattr(model, "optimizer", None)
        # One of Keras 3 scales the loss already, if it is to. tf_keras has no such argument, and always scales.
        kept = {"auto_scale_loss": False} if optimizer and library is keras else {}
        # tf_keras drops the metrics that it is not given again.
        kept |= two_kerases.compiled_metrics(model)
        library.Model.compile(model, optimizer=optimizer or "sgd", loss=self._loss.given, **kept)
        if optimizer is None:
            model.optimizer = None


def _build(model: Any, spec: Any) -> None:
    """Makes the weights of a model that is built by its first call, for batches of any size."""
    if isinstance(model, two_kerases.keras_of(model).Sequential) and not tf.nest.is_nested(spec):
        # A call would fix the size of its batches.
        model.build((None, *spec.shape[1:]))
    else:
        model(tf.nest.map_structure(lambda one: tf.zeros([2, *one.shape[1:]], one.dtype), spec))


class _Loss:
    """The loss of a model by example, and which metric is shown next to it."""

    def __init__(self, name: Name | str, model: Any, data: Source, asked: str | None, *, has_another: bool) -> None:
        """Args:
        data: what the model learns from.
        has_another: whether a model that is compiled without a loss has one by `add_loss` or its own `compute_loss`.
        """
        self._name = name
        self.given = _named(asked, model) if asked else getattr(model, "loss", None) or None
        """A name, a function, a Loss, or several."""
        if self.given is None and not has_another:
            how = "compiled without a loss" if getattr(model, "compiled", False) else "not compiled"
            raise UsageError(f"{name}: the model is {how}; compile it with a loss, or give --loss")
        loss = self.given
        if isinstance(loss, str):
            loss = _by_name(loss, model, data)
            if loss is None:
                where = f"--loss={asked}: " if asked else f"{name}: the model is compiled with loss {self.given}: "
                raise UsageError(f"{where}Keras has no such loss; give one of keras.losses, such as huber")
        # A Loss of Keras' reduces what its `call` gives by example. Several losses are not for `each`.
        self._function: Callable[..., Any] | None = None
        if loss is not None and callable(loss):
            self._function = rewritten(getattr(loss, "call", loss))
        function = getattr(loss, "fn", loss)
        kind = getattr(function, "__name__", "")
        self.known = by_example(function, keras3.options_of_loss(loss))
        """Whether it is a function of either Keras that gives each example its loss."""
        metric = "accuracy" if kind in _CLASSES else "mean_absolute_error" if kind in _NUMBERS else None
        threshold = 0.0 if keras3.options_of_loss(loss).get("from_logits") else 0.5
        binary = kind == "binary_crossentropy"
        self.default = DefaultMetric(metric, threshold=threshold, binary=binary) if metric else None
        """What is shown of a model that was compiled without metrics."""

    def more_than_a_mean(self, model: Any, data: Source) -> str | None:
        """What there is about the loss that its mean over single examples leaves out."""
        loss, options = self.given, keras3.options_of_loss(self.given)
        weights = two_kerases.given_losses(model)[1]
        outputs = getattr(model, "outputs", None) or []
        found = {
            "loss of add_loss alone": loss is None,
            "several outputs": len(outputs) > 1 or self._function is None,
            "several inputs": tf.nest.is_nested(data.input_spec),
            "weights of the examples": getattr(data, "weighted", False),
            "loss_weights": weights is not None,
            "ignore_class": options.get("ignore_class") is not None,
            "masks": any(keras3.mask_of(output) is not None for output in outputs),
            "compute_loss of the model's own": keras3.overrides(model, "compute_loss"),
            "__call__ of a loss's own": _reduces_by_itself(model, loss),
            f"reduction {getattr(loss, 'reduction', '')}": getattr(loss, "reduction", "mean") not in _MEANS,
        }
        return next((what for what, is_so in found.items() if is_so), None)

    def values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """What it gives, not reduced."""
        assert self._function is not None  # of one output
        labels = _like(labels, outputs)
        if isinstance(self.given, keras.losses.Loss):
            labels, outputs = tf.cast(labels, self.given.dtype), tf.cast(outputs, self.given.dtype)
        return self._function(labels, outputs)

    def each(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """float32 [batch]."""
        return _mean(tf.cast(self.values(labels, outputs), tf.float32))


def _reduces_by_itself(model: Any, loss: Any) -> bool:
    kind = two_kerases.keras_of(model).losses.Loss
    return isinstance(loss, kind) and type(loss).__call__ is not kind.__call__


def _named(name: str, model: Any) -> Any:
    """The loss of --loss: a name, or a loss of classes, of which the last layer says whether it gives logits."""
    if name not in _CLASSES:
        return name
    kind = "".join(word.title() for word in name.split("_"))
    return getattr(two_kerases.keras_of(model).losses, kind)(from_logits=_last_activation(model) not in _ACTIVATIONS)


def _by_name(name: str, model: Any, data: Source) -> Any:
    """The loss that the model's Keras has for a name; None if it has none."""
    library = two_kerases.keras_of(model)
    if library is keras and name.lower() in ("crossentropy", "ce"):
        # One of three, by the shapes of labels and outputs.
        inputs, labels, *_ = next(iter(data.validation(batch=2)))
        outputs = model(inputs, **keras3.call_arguments(model, training=False))
        first = [tf.nest.flatten(each)[0] for each in (labels, outputs)]
        return keras3.loss_of(name, *first, rewrite=lambda function: function)
    try:
        return library.losses.get(name)
    except ValueError:
        return None


def _like(labels: Tensor, outputs: Tensor) -> Tensor:
    """Labels [batch] as [batch, 1] next to outputs [batch, 1]: together they would be broadcast to [batch, batch]."""
    if outputs.shape.rank == 2 and outputs.shape[-1] == 1 and labels.shape.rank == 1:
        labels = labels[:, tf.newaxis]
        return tf.cast(labels, outputs.dtype)
    return labels


def _mean(values: Tensor) -> Tensor:
    """[batch] of [batch, ...]."""
    return tf.reduce_mean(tf.reshape(values, [tf.shape(values)[0], -1]), axis=1) if values.shape.rank > 1 else values


def _last_activation(model: Any) -> str:
    layer = model.layers[-1] if model.layers else model
    if type(layer).__name__ == "Softmax":
        return "softmax"
    return getattr(getattr(layer, "activation", None), "__name__", "")
