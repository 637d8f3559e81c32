"""Has a strategy that a script makes send gradients as the tasks of the job have decided.

TensorFlow's own choice for several workers is never NCCL, and for several GPUs of one worker always. What a script says
itself stays. Imports TensorFlow only after the script has.
"""

from typing import Any

from dtj_launch.communication import RING
from dtj_trainer.compat import replace
from dtj_trainer.config.parsing import Config
from dtj_trainer.process.imports import when_imported


def give(config: Config) -> None:
    """From now on, for the strategy of the job alone."""
    when_imported("tensorflow", _give_keys)
    if config.strategy == "MultiWorkerMirrored":
        when_imported("tensorflow", lambda: _give_workers(config.communication))
    elif config.strategy == "Mirrored" and config.communication == RING:
        when_imported("tensorflow", _give_gpus)


def _give_keys() -> None:
    from dtj_trainer.compat.tensorflow import separate_mirrored_strategies

    separate_mirrored_strategies()


def _give_workers(communication: str) -> None:
    import tensorflow as tf

    def make(original: Any, strategy: Any, cluster_resolver: Any = None, communication_options: Any = None) -> None:
        original(strategy, cluster_resolver, decided(communication_options, communication))

    replace(tf.distribute.MultiWorkerMirroredStrategy, "__init__", make, library="tensorflow")


def decided(options: Any, communication: str) -> Any:
    """The options of a strategy, with `communication` where they leave it open."""
    import tensorflow as tf

    make = tf.distribute.experimental.CommunicationOptions
    options = make() if options is None else options
    left_open = tf.distribute.experimental.CommunicationImplementation.AUTO
    if getattr(options, "implementation", None) is not left_open:
        return options
    return make(options.bytes_per_pack, options.timeout_seconds, communication)


def _give_gpus() -> None:
    import tensorflow as tf

    def make(original: Any, strategy: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        without = tf.distribute.HierarchicalCopyAllReduce() if tf.config.list_physical_devices("GPU") else None
        original(strategy, devices, cross_device_ops or without)

    replace(tf.distribute.MirroredStrategy, "__init__", make, library="tensorflow")
