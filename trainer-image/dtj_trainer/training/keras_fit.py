"""Keras' `Model.fit` under every synchronous strategy, stopped and resumed as exactly as our own loop.

Keras 3.15 cannot do it: under MultiWorkerMirrored its `fit` fails before the first step, and several steps a call fail
under Mirrored as well (keras-team/keras#20585). So `fit` keeps what it is for - epochs, callbacks, the model's own
`train_step` - and three of the model's methods are replaced on the model itself:

- `compute_loss` (public): the task's loss over the global batch, exact where replicas have unequal shares.
- `make_train_function` (public): the calls of the inner loop, with its agreement, checkpoints and progress.
- `_maybe_symbolic_build` (private, Keras 3): asks every replica for a batch, which is where it fails. The model and
  its optimizer are built already.

The last is why the version is checked. Imports TensorFlow.
"""

import atexit
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import keras
import tensorflow as tf

from dtj_trainer import keras_compat
from dtj_trainer.compat import keras3, tf_keras
from dtj_trainer.config.entry_points import Name
from dtj_trainer.distribution.strategies import of_each_replica
from dtj_trainer.errors import UsageError
from dtj_trainer.tasks.aggregation import Measured
from dtj_trainer.training.callback_state import CallbackState, Progress
from dtj_trainer.training.stepping import Course, fit_segments
from dtj_trainer.training.weight_update import Finalization
from dtj_trainer.user_code.keras_import import PROVED, is_proved
from dtj_trainer.user_code.loader import load

log = logging.getLogger(__name__)


class Validations(Protocol):
    """What was evaluated in the midst of the training."""

    @property
    def step(self) -> int:
        """After which the newest one came; 0: there was none."""
        ...

    @property
    def values(self) -> Mapping[str, float]:
        """What it gave, by names such as `val_loss`."""
        ...


class Loop(Protocol):
    """What drives the inner loop."""

    step: int

    @property
    def measured(self) -> Measured | None:
        """What the present call of `advance`, or else the last one, has measured so far."""
        ...

    def advance(self, iterator: Any, until: int) -> Measured:
        """Trains up to this step; the means of the metrics over the steps taken."""
        ...

    def save(self) -> None:
        """Saves the step that the loop stands at, unless it is saved."""
        ...


def check_version(version: str) -> None:
    """Lets pass the versions of Keras 3 that are known to work.

    Raises:
        UsageError: another one.
    """
    if not is_proved(version):
        raise UsageError(
            f"--loop=fit: Keras {version} is installed, and fit is only known to work with Keras "
            f"{', '.join(PROVED)}; use --loop=custom, or install keras=={PROVED[-1]}.*"
        )


def prepare(model: Any, optimizer: Any, *, loss: Callable[..., Any], steps_per_call: int) -> None:
    """Compiles the model for `fit`. To be called in the strategy's scope.

    Args:
        model: of either Keras, built.
        optimizer: of the same Keras, built.
        loss: (outputs, labels, weights, inputs) -> what this replica adds to the loss, penalties of layers included.
        steps_per_call: after this many steps Keras calls its callbacks.

    Raises:
        UsageError: `fit` is not known to work with this Keras.
    """
    if keras_compat.keras_of(model) is keras:
        check_version(keras.__version__)
        keras3.leave_unbuilt(model)
        keras3.compile_again(model, optimizer, steps_per_call=steps_per_call)
    elif tf_keras.is_compiled(model):
        # To compile it once more would leave out its loss and metrics.
        model.optimizer = optimizer
        tf_keras.set_steps_per_call(model, steps_per_call)
    else:
        keras_compat.keras_of(model).Model.compile(model, optimizer=optimizer, steps_per_execution=steps_per_call)
    model.compute_loss = lambda x=None, y=None, y_pred=None, sample_weight=None, training=True: loss(
        y_pred, y, sample_weight, x
    )
    # The metrics are the inner loop's, which reduces them once a call.
    model.compute_metrics = lambda x, y, y_pred, sample_weight=None: {}


def fit(
    model: Any,
    loop: Loop,
    stream: Callable[[int], Any],
    *,
    callbacks: Name | None,
    course: Course,
    steps_per_call: int,
    finalization: Finalization,
    validations: Validations | None = None,
    callback_state: CallbackState | None = None,
) -> None:
    """Runs `model.fit` from the step where the loop stands to the last, or until a callback stops the training.

    If it ended with an error, and then a checkpoint was restored, it can be called again. It goes on with new
    callbacks, as a resumed run does.

    An epoch of Keras' is this many whole steps; the stream of examples itself runs on over its end. Where the first or
    the last epoch has fewer steps, `fit` is called for it alone, and the callbacks see one training all the same.

    Args:
        model: prepared by `prepare`.
        loop: what each call of the train function advances.
        stream: first step -> the batches from there on, distributed.
        callbacks: the user's function that gives a list of them.
        course: where to stop, and how many steps a whole epoch has.
        steps_per_call: as prepared.
        finalization: of the optimizer, done once at the end, before callbacks see it.
        validations: of the loop; callbacks see those of an epoch at its end.
        callback_state: of the run before this one; None: the callbacks begin again.

    Raises:
        UsageError: what should give callbacks does not.
    """
    library = keras_compat.keras_of(model)
    # A callback may have stopped a training that went back to a checkpoint from before that.
    model.stop_training = False
    epoch = _Epoch(loop, model, steps_per_call=steps_per_call, course=course)
    begins = library.callbacks.LambdaCallback(on_epoch_begin=epoch.begin)
    given = _callbacks(callbacks, library)
    strategy = model.distribute_strategy
    several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    if several and not strategy.extended.should_checkpoint:
        _write_elsewhere(given, library)
    stops = _Stops(epoch, given, library) if several and given else None
    callback_list = _whole_training(library, epoch, validations, callback_state, stops)(
        [begins, *given],
        add_history=True, model=model, epochs=course.whole_epochs, steps=course.steps_per_epoch, verbose=0,
    )  # fmt: skip
    history = [one for one in callback_list.callbacks if isinstance(one, library.callbacks.History)]
    model.make_train_function = lambda force=False: epoch.train
    model.train_function = epoch.train
    model.get_metrics_result = epoch.means
    finalization.leave_to_us()
    if callback_state:
        before = callback_state.watch([*given, *history], epoch.progress)
        _resume(before, callback_state, callback_list, epoch)
    segments = fit_segments(epoch.at, course.total_steps + course.shift, course.steps_per_epoch)
    for first_epoch, end, epoch.steps in () if model.stop_training else segments:
        model.fit(
            stream(loop.step),
            initial_epoch=first_epoch, epochs=end, steps_per_epoch=epoch.steps,
            callbacks=callback_list, verbose=0, shuffle=False,
        )  # fmt: skip
        if model.stop_training:
            break
    # A checkpoint holds the weights as trained: not their averages, nor what a callback restores at the end.
    loop.save()
    finalization.do()
    callback_list.end()


def _resume(before: Progress | None, callback_state: CallbackState, callback_list: Any, epoch: "_Epoch") -> None:
    """Goes back to where the callbacks stood at the step of the checkpoint.

    A checkpoint of the last step of an epoch is written before the callbacks see the end of it. They see it here.

    Args:
        before: where `fit` stood; None: it begins.
    """
    if before is None:
        return
    if before.stopped:
        log.info("a callback had stopped the training at this step")
        callback_list.on_train_begin()
    elif before.steps_per_epoch == epoch.steps_per_epoch:
        epoch.resume(callback_state.measured(before.sums), ended=before.ended)
        ended = epoch.ended_by_now()
        if before.ended < ended:
            callback_list.on_train_begin()
            callback_list.on_epoch_end(ended - 1, epoch.means())
    epoch.model.stop_training |= before.stopped


class _Stops:
    """Lets a callback that stops the training on one worker stop it on all, at the same step.

    A time limit by the clock of each worker is such a callback. The others would wait for it in the next step.
    """

    def __init__(self, epoch: "_Epoch", callbacks: Sequence[Any], library: ModuleType) -> None:
        self._epoch = epoch
        self._by_batch = any(keras_compat.sees_batches(one, library) for one in callbacks)
        """Whether a callback sees batches. Else the workers need not ask each other after each of them."""

    def agree(self, *, after_batch: bool = False) -> None:
        """To be called on all workers after their callbacks."""
        if after_batch and not self._by_batch:
            return
        model = self._epoch.model
        strategy = model.distribute_strategy
        votes = of_each_replica(strategy, int(bool(model.stop_training)))
        if any(votes) and not all(votes) and strategy.extended.should_checkpoint:
            log.info("a callback has stopped the training on some of the workers: all stop")
        model.stop_training = any(votes)


def _whole_training(
    library: ModuleType,
    epochs: "_Epoch",
    validations: Validations | None,
    callback_state: CallbackState | None,
    stops: _Stops | None,
) -> type:
    """Callbacks that see one training, of however many calls of `fit` it consists, and its validations."""

    class WholeTraining(library.callbacks.CallbackList):  # type: ignore[misc, name-defined]
        _begun = False
        _logs: Mapping[str, float] | None = None

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if logs is not None and validations and epochs.is_of(epoch, validations.step):
                # Into what Keras itself goes on with, as its `fit` does with validation_data.
                logs.update(validations.values)
            super().on_epoch_end(epoch, logs)
            epochs.ended = epoch + 1
            if stops:
                stops.agree()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            super().on_epoch_begin(epoch, logs)
            if stops:
                stops.agree()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)
            if stops:
                stops.agree(after_batch=True)

        def on_train_begin(self, logs: Any = None) -> None:
            if not self._begun:
                self._begun = True
                super().on_train_begin(logs)
                if callback_state:
                    callback_state.begun()

        def on_train_end(self, logs: Any = None) -> None:
            self._logs = logs

        def end(self) -> None:
            if self._begun:
                super().on_train_end(self._logs)

    return WholeTraining


def _callbacks(name: Name | None, library: ModuleType) -> list[Any]:
    if name is None:
        return []
    found = load(name)()
    if not isinstance(found, list) or not all(isinstance(one, library.callbacks.Callback) for one in found):
        raise UsageError(f"{name}: gave {found!r:.100}; return a list of callbacks of {library.__name__}")
    return found


def _write_elsewhere(callbacks: Sequence[Any], library: ModuleType) -> None:
    """Lets callbacks write their files into a folder of this task's own: those of the leader are the ones that count.

    Two tasks cannot write one file, and each needs what its callback keeps in mind, such as the best value.
    """
    folder = Path(tempfile.mkdtemp(prefix="callbacks-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for one in callbacks:
        if isinstance(one, library.callbacks.ModelCheckpoint):
            one.filepath = str(folder / Path(one.filepath).name)
        elif isinstance(one, library.callbacks.TensorBoard):
            one.log_dir = str(folder)
        elif isinstance(one, library.callbacks.CSVLogger):
            one.filename = str(folder / Path(one.filename).name)


class _Epoch:
    """The epoch that Keras is in: where it ends, and the means of the metrics since it began."""

    def __init__(self, loop: Loop, model: Any, *, steps_per_call: int, course: Course) -> None:
        self._loop = loop
        self._course = course
        self.model = model
        self.steps = 0
        """Of the epochs of this call of `fit`."""
        self.steps_per_epoch = course.steps_per_epoch
        self.ended = self.at // self.steps_per_epoch
        """Epochs of which the callbacks have seen the end."""
        self._steps_per_call = steps_per_call
        self._first = loop.step
        self._measured: Measured | None = None
        self._in_call = False

    @property
    def at(self) -> int:
        """The step of the loop, as it would be if all steps had taken the present batch: epochs are counted by it."""
        return self._loop.step + self._course.shift

    def is_of(self, epoch: int, step: int) -> bool:
        """Whether a step is one of this epoch, which ends now. A rollback may have come after a later step."""
        return epoch * self.steps_per_epoch < step + self._course.shift <= self.at

    def ended_by_now(self) -> int:
        """Epochs that have ended at the step of the loop; the last one may be shorter."""
        whole = self.steps_per_epoch
        return self.at // whole if self._loop.step < self._course.total_steps else -(-self.at // whole)

    def resume(self, measured: Measured | None, *, ended: int) -> None:
        """Goes on in the midst of an epoch, or before its callbacks see its end."""
        self._measured, self.ended = measured, ended

    def progress(self) -> Progress:
        """Where `fit` stands, also in the midst of `train`."""
        measured = self._measured
        if self._in_call and self._loop.measured is not None:
            measured = self._loop.measured if measured is None else measured + self._loop.measured
        return Progress(
            steps_per_epoch=self.steps_per_epoch,
            ended=self.ended,
            stopped=bool(self.model.stop_training),
            sums=None if measured is None else measured.sums,
        )

    def begin(self, _epoch: int, _logs: object = None) -> None:
        """As a callback: an epoch begins, or its rest does."""
        self._first = self._loop.step
        if self.at % self.steps_per_epoch == 0:
            self._measured = None

    def train(self, iterator: Any) -> dict[str, float]:
        """As Keras' train function: some steps, and the metrics of the epoch so far."""
        before = self._loop.step
        self._in_call = True
        measured = self._loop.advance(iterator, min(before + self._steps_per_call, self._first + self.steps))
        self._in_call = False
        if measured:  # Nothing is, if the update of each of these steps was skipped.
            self._measured = measured if self._measured is None else self._measured + measured
        return self.means()

    def means(self) -> dict[str, float]:
        """As Keras' get_metrics_result."""
        return {} if self._measured is None else dict(self._measured)
