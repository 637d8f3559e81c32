"""Repairs of Keras' own `fit`, `evaluate` and `predict` in scripts, installed as soon as one imports Keras.

Importing this package imports neither TensorFlow nor Keras.
"""

import logging

from dtj_trainer.config.parsing import Config
from dtj_trainer.process.imports import when_imported

log = logging.getLogger(__name__)

TESTED_VERSIONS = ("3.15",)
"""Versions of Keras 3 whose private functions are known: the tests have run with them."""


def is_tested(version: str) -> bool:
    """Whether this version of Keras 3 is one of them."""
    return ".".join(version.split(".")[:2]) in TESTED_VERSIONS


def install_when_imported(config: Config) -> None:
    """Installs the repairs (`override`) now, or when Keras is imported.

    Args:
        config: of this task. If the job has several replicas that train one model, a version of Keras that is not
            known is reported.
    """

    def install_if_tested() -> None:
        import keras

        if keras.backend.backend() != "tensorflow":
            return
        if is_tested(keras.__version__):
            from dtj_trainer.keras_fit import override

            override.install(config)
        elif config.strategy == "MultiWorkerMirrored":
            log.warning(
                f"Keras {keras.__version__} is installed, and fit, evaluate and predict with several replicas "
                f"are only known to work with Keras {', '.join(TESTED_VERSIONS)}: Keras is left as it is; install "
                f"keras=={TESTED_VERSIONS[-1]}.*"
            )

    def tell() -> None:
        from dtj_trainer.keras_fit import second_keras

        second_keras.tell_at_fit()

    when_imported("keras", install_if_tested)
    when_imported("tf_keras", tell)
