"""One seed for all tasks of a job that run a script: what chance decides, it decides alike on all of them.

Workers that shuffle, split or begin otherwise each train on other examples than they divide among them: some are seen
twice in an epoch, others never. Imports no library before the script does.
"""

import functools
import importlib
import random
from typing import Any

from dtj_trainer.process.imports import when_imported

_LARGEST = 2**32
"""NumPy takes no larger seed."""


def begin_with(seed: int) -> None:
    """Seeds Python's random numbers, which both Kerases draw seeds from; NumPy's and TensorFlow's when imported."""
    seed %= _LARGEST
    random.seed(seed)
    when_imported("numpy.random", lambda: _seed_numpy(seed))
    when_imported("tensorflow", lambda: _seed_tensorflow(seed))


def _seed_numpy(seed: int) -> None:
    # NumPy would import it again as an attribute, which it is not yet.
    module: Any = importlib.import_module("numpy.random")
    module.seed(seed)
    make, seeds = module.default_rng, module.SeedSequence(seed)

    def default_rng(seed: Any = None) -> Any:
        return make(seeds.spawn(1)[0] if seed is None else seed)

    module.default_rng = functools.wraps(make)(default_rng)


def _seed_tensorflow(seed: int) -> None:
    import tensorflow as tf

    tf.random.set_seed(seed)
