"""Has `compat.keras_override` installed as soon as a script imports Keras. Must not import TensorFlow or Keras."""

import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from dtj_trainer.config.parsing import Config

log = logging.getLogger(__name__)

PROVED = ("3.15",)
"""Versions of Keras 3 whose private functions are known: the tests have run with them."""


def is_proved(version: str) -> bool:
    """Whether this version of Keras 3 is one of them."""
    return ".".join(version.split(".")[:2]) in PROVED


def install(config: Config) -> None:
    """Installs the override. Imports Keras and TensorFlow.

    Args:
        config: of this task.
    """
    from dtj_trainer.compat import keras_override
    from dtj_trainer.user_code.fit_losses import FitLosses
    from dtj_trainer.user_code.fit_models import FitModels
    from dtj_trainer.user_code.fit_watch import FitWatch

    keras_override.install(FitLosses(config.cluster), FitWatch(config), FitModels())


def override(config: Config) -> None:
    """Installs the override now, or when Keras is imported.

    Args:
        config: of this task. If the job has several replicas that train one model, a version of Keras that is not
            known is reported.
    """

    def install_if_proved() -> None:
        import keras

        if keras.backend.backend() != "tensorflow":
            return
        if is_proved(keras.__version__):
            install(config)
        elif config.strategy == "MultiWorkerMirrored":
            log.warning(
                f"Keras {keras.__version__} is installed, and fit, evaluate and predict with several replicas "
                f"are only known to work with Keras {', '.join(PROVED)}: Keras is left as it is; install "
                f"keras=={PROVED[-1]}.*"
            )

    if "keras" in sys.modules:
        install_if_proved()
    elif any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    else:
        sys.meta_path.insert(0, _Finder(install_if_proved))


class _Finder:
    """Sees the first import of Keras, and leaves it to the others."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._asks = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # TensorFlow looks for Keras without importing it, so this finder stays until Keras has been executed.
        if name != "keras" or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            sys.meta_path.remove(self)
            self._then()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
