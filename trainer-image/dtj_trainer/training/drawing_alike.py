"""Random numbers while what a model computes for a batch is compared with what it computes for its parts.

Imports TensorFlow.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.compat.tensorflow import replacing_draws


@contextmanager
def drawing_alike(otherwise: Callable[[], object], *, in_all_threads: bool = False) -> Iterator[None]:
    """Lets TensorFlow and Keras draw, in this thread, the same numbers for each example, however many there are.

    What is drawn has equal values along its first dimension, whatever that is, so that a batch and a part of it draw
    the same for each example, and the same for a weight. Each such context draws the same in the same order. Nothing
    is shuffled. No generator of Python, NumPy or TensorFlow stands elsewhere afterwards; those of Keras move as in a
    `StatelessScope`.

    Args:
        otherwise: called where numbers are drawn that cannot be made alike, such as those of a gamma distribution.
        in_all_threads: also in others, such as those of replicas; each draws the same.
    """
    drawn: Counter[int] = Counter()

    def seed() -> Any:
        drawn[thread := threading.get_ident()] += 1
        return tf.constant([drawn[thread], 1], tf.int32)

    def by_key(draw: Callable[..., Any], shape: Any, *args: Any, **kwargs: Any) -> Any:
        shape = tf.convert_to_tensor(shape)
        if not shape.shape[0]:
            return draw(shape, *args, **kwargs)
        return tf.broadcast_to(draw(tf.concat([[1], shape[1:]], 0), *args, **kwargs), shape)

    def of_type(draw: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, shape, dtype, **__: draw(shape, seed(), dtype=dtype)

    def integers(_: Any, shape: Any, minval: Any, maxval: Any, **__: Any) -> Any:
        minval = tf.convert_to_tensor(minval)
        return tf.random.stateless_uniform(shape, seed(), minval, maxval, dtype=minval.dtype)

    def state(*_: Any, **__: Any) -> Any:
        return tf.concat([tf.cast(seed(), tf.int64), [0]], 0)

    def other(draw: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        otherwise()
        return draw(*args, **kwargs)

    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with replacing_draws(
            in_all_threads=in_all_threads,
            normal=of_type(tf.random.stateless_normal),
            truncated_normal=of_type(tf.random.stateless_truncated_normal),
            uniform=of_type(tf.random.stateless_uniform),
            integers=integers,
            by_key=by_key,
            shuffle=lambda _, values, *__, **___: values,
            seeds=lambda *_: (1, 1),
            state=state,
            other=other,
        ):
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
