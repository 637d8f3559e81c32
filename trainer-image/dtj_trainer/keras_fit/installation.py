"""Has the override of Keras' `fit` installed as soon as a script imports Keras. Must not import TensorFlow or Keras."""

import logging

from dtj_trainer.config.parsing import Config
from dtj_trainer.user_code.imports import when_imported

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
    import keras

    from dtj_trainer.distribution.agreement import FitAgreement
    from dtj_trainer.keras_fit import override
    from dtj_trainer.keras_fit.losses import FitLosses
    from dtj_trainer.keras_fit.models import FitModels
    from dtj_trainer.keras_fit.watch import FitWatch

    cluster = config.cluster
    override.install(FitLosses(cluster), FitWatch(config), FitModels(), FitAgreement(cluster, keras))


def install_when_imported(config: Config) -> None:
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

    when_imported("keras", install_if_proved)
