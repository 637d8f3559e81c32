"""Watches a script as it makes its strategy of several tasks. Imports TensorFlow only after the script has."""

import functools
from contextlib import nullcontext
from typing import Any

from dtj_trainer.compat import replace
from dtj_trainer.config.parsing import Config
from dtj_trainer.errors import PeerLost
from dtj_trainer.process.imports import when_imported
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.watchdog import Watchdog


def watch(config: Config, termination: Termination, *, together: bool) -> None:
    """Has SIGTERM do what it did before a script made its strategy, for which other workers are not awaited for ever.

    Args:
        together: whether this is a task of several workers.
    """
    when_imported("tensorflow", lambda: _watch(config, termination, together=together))


def _watch(config: Config, termination: Termination, *, together: bool) -> None:
    import tensorflow as tf

    seconds = max(config.stall_timeout, config.start_timeout)
    lost = PeerLost(
        f"MultiWorkerMirroredStrategy was not made within {seconds:g} s (--stall-timeout): it waits for the other "
        "workers, each of which has to make it"
    )
    workers = tf.distribute.MultiWorkerMirroredStrategy

    def make(original: Any, *args: Any, awaits_workers: bool, **kwargs: Any) -> None:
        try:
            with Watchdog(seconds, lost) if awaits_workers else nullcontext():
                original(*args, **kwargs)
        finally:
            termination.take_back()

    for kind in (workers, tf.distribute.ParameterServerStrategy, tf.distribute.Server):
        made = functools.partial(make, awaits_workers=together and kind is workers)
        replace(kind, "__init__", made, library="tensorflow")
