"""Watches a script as it makes its strategy of several tasks. Imports TensorFlow only after the script has.

TensorFlow finds the other workers by TF_CONFIG alone. A script that has changed it would wait for workers that are
elsewhere, and the others for it.
"""

import functools
import os
from collections.abc import Mapping
from typing import Any

from dtj_trainer.config import cluster as clusters
from dtj_trainer.config.cluster import Cluster
from dtj_trainer.config.parsing import Config
from dtj_trainer.errors import PeerLost, UsageError
from dtj_trainer.process.ending import place_of_call
from dtj_trainer.process.imports import when_imported
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.watchdog import Watchdog


def watch(config: Config) -> None:
    """Watches from now on. Only for a task of several workers."""
    when_imported("tensorflow", lambda: _watch(config))


def _watch(config: Config) -> None:
    import tensorflow as tf

    from dtj_trainer.user_code import completion

    kind = tf.distribute.MultiWorkerMirroredStrategy
    original = kind.__init__
    seconds = max(config.stall_timeout, config.start_timeout)
    lost = PeerLost(
        f"MultiWorkerMirroredStrategy was not made within {seconds:g} s (--stall-timeout): it waits for the other "
        "workers, each of which has to make it"
    )

    @functools.wraps(original)
    def make(strategy: Any, cluster_resolver: Any = None, *args: Any, **kwargs: Any) -> None:
        resolves = tf.distribute.cluster_resolver.TFConfigClusterResolver
        if cluster_resolver is None or isinstance(cluster_resolver, resolves):
            check_unchanged(config.cluster, os.environ)
        with Watchdog(seconds, lost):
            original(strategy, cluster_resolver, *args, **kwargs)
        if not config.cluster.leads and completion.Listener.current is None:
            completion.Listener(config.cluster.leader)

    kind.__init__ = make


def keep_signals(termination: Termination) -> None:
    """Has SIGTERM do from now on what it did before a script made its strategy."""
    when_imported("tensorflow", lambda: _keep_signals(termination))


def _keep_signals(termination: Termination) -> None:
    import tensorflow as tf

    def kept(original: Any) -> Any:
        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> None:
            try:
                original(*args, **kwargs)
            finally:
                termination.take_back()

        return make

    for kind in (
        tf.distribute.MultiWorkerMirroredStrategy,
        tf.distribute.ParameterServerStrategy,
        tf.distribute.Server,
    ):
        kind.__init__ = kept(kind.__init__)


def check_unchanged(cluster: Cluster, environ: Mapping[str, str]) -> None:
    """Makes sure that TF_CONFIG still says what it said when this task began.

    Raises:
        UsageError: it does not.
    """
    try:
        now = clusters.from_environment(environ)
    except UsageError:
        changed = "it does not fit this task any more"
    else:
        if now.task == cluster.task and now.addresses == cluster.addresses:
            return
        changed = f"this is {now.task}" if now.task != cluster.task else _difference(cluster, now)
    raise UsageError(
        f"{place_of_call()}TF_CONFIG: the script has changed it ({changed}); do not set it in the script: the operator "
        "and dtj run set it for each worker"
    )


def _difference(before: Cluster, now: Cluster) -> str:
    for task, address in now.addresses.items():
        if before.addresses.get(task) != address:
            return f"{task} is at {address}"
    missing = next(task for task in before.addresses if task not in now.addresses)
    return f"{missing} is missing"
