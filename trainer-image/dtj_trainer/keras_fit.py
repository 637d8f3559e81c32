"""Keras' `Model.fit` under every synchronous strategy, stopped and resumed as exactly as our own loop.

Keras 3.15 cannot do it: under MultiWorkerMirrored its `fit` fails before the first step, and several steps a call fail
under Mirrored as well (keras-team/keras#20585). So `fit` keeps what it is for - epochs, callbacks, the model's own
`train_step` - and three of the model's methods are replaced on the model itself:

- `compute_loss` (public): the task's loss over the global batch, exact where replicas have unequal shares.
- `make_train_function` (public): the calls of our engine, with its agreement, checkpoints and progress.
- `_maybe_symbolic_build` (private, Keras 3): asks every replica for a batch, which is where it fails. The model and
  its optimizer are built already.

The last is why the version is checked. Imports TensorFlow.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

import keras

from dtj_trainer import kerases
from dtj_trainer.errors import UsageError
from dtj_trainer.own.calling import load
from dtj_trainer.own.names import Name
from dtj_trainer.schedule import legs

PROVED = ("3.15",)
"""Versions of Keras 3 that the tests of this module have run with."""


class Loop(Protocol):
    """What drives the engine."""

    step: int

    def advance(self, iterator: Any, until: int) -> Mapping[str, float]:
        """Trains up to this step; the means of the metrics over the steps taken."""
        ...


def check_version(version: str) -> None:
    """Lets pass the versions of Keras 3 that are known to work.

    Raises:
        UsageError: another one.
    """
    if ".".join(version.split(".")[:2]) not in PROVED:
        raise UsageError(
            f"--loop=fit: Keras {version} is installed, and fit is only known to work with Keras "
            f"{', '.join(PROVED)}; use --loop=custom, or install keras=={PROVED[-1]}.*"
        )


def prepare(model: Any, optimizer: Any, *, loss: Callable[[Any, Any], Any], steps_per_call: int) -> None:
    """Compiles the model for `fit`. To be called in the strategy's scope.

    Args:
        model: of either Keras, built.
        optimizer: of the same Keras, built.
        loss: (outputs, labels) -> what this replica adds to the loss, penalties of the layers included.
        steps_per_call: after so many steps Keras calls its callbacks.

    Raises:
        UsageError: `fit` is not known to work with this Keras.
    """
    if kerases.of(model) is keras:
        check_version(keras.__version__)
        model._maybe_symbolic_build = lambda **_: None
    model.compile(optimizer=optimizer, steps_per_execution=steps_per_call)
    model.compute_loss = lambda x=None, y=None, y_pred=None, sample_weight=None, training=True: loss(y_pred, y)
    # The metrics are the engine's, which reduces them once a call.
    model.compute_metrics = lambda x, y, y_pred, sample_weight=None: {}


def fit(
    model: Any,
    loop: Loop,
    stream: Callable[[int], Any],
    *,
    callbacks: Name | None,
    total_steps: int,
    steps_per_epoch: int,
    steps_per_call: int,
) -> None:
    """Runs `model.fit` from the step where the loop stands to the last, or until a callback stops the training.

    An epoch of Keras' is so many whole steps; the stream of examples itself runs on over its end.

    Args:
        model: prepared by `prepare`.
        loop: what each call of the train function advances.
        stream: first step -> the batches from there on, distributed.
        callbacks: the user's function that gives a list of them.
        total_steps: where to stop.
        steps_per_epoch: of a whole epoch.
        steps_per_call: as prepared.

    Raises:
        UsageError: what should give callbacks does not.
    """
    theirs = _callbacks(callbacks, kerases.of(model))
    for first_epoch, epochs, steps in legs(loop.step, total_steps, steps_per_epoch):
        epoch = _Epoch(model, loop, steps=steps, steps_per_call=steps_per_call)
        model.make_train_function = lambda force=False, epoch=epoch: epoch.train
        model.train_function = epoch.train
        model.get_metrics_result = epoch.means
        begins = kerases.of(model).callbacks.LambdaCallback(on_epoch_begin=epoch.begin)
        model.fit(
            stream(loop.step),
            initial_epoch=first_epoch, epochs=epochs, steps_per_epoch=steps,
            callbacks=[begins, *theirs], verbose=0, shuffle=False,
        )  # fmt: skip
        if model.stop_training:
            return


def _callbacks(name: Name | None, library: ModuleType) -> list[Any]:
    if name is None:
        return []
    found = load(name)()
    if not isinstance(found, list) or not all(isinstance(one, library.callbacks.Callback) for one in found):
        raise UsageError(f"{name}: gave {found!r:.100}; return a list of callbacks of {library.__name__}")
    return found


class _Epoch:
    """The epoch that Keras is in: where it ends, and the means of the metrics since it began."""

    def __init__(self, model: Any, loop: Loop, *, steps: int, steps_per_call: int) -> None:
        self._model = model
        self._loop = loop
        self._steps = steps
        self._steps_per_call = steps_per_call
        self._first = loop.step
        self._sums: dict[str, float] = {}

    def begin(self, _epoch: int, _logs: object = None) -> None:
        """As a callback: a new epoch begins."""
        self._first, self._sums = self._loop.step, {}

    def train(self, iterator: Any) -> dict[str, float]:
        """As Keras' train function: some steps, and the metrics of the epoch so far."""
        before = self._loop.step
        metrics = self._loop.advance(iterator, min(before + self._steps_per_call, self._first + self._steps))
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value * (self._loop.step - before)
        return self.means()

    def means(self) -> dict[str, float]:
        """As Keras' get_metrics_result."""
        return {name: value / (self._loop.step - self._first) for name, value in self._sums.items()}
