"""Which function of the user's runs now, for a watch that ends the task while it runs. Must not import TensorFlow."""

from collections.abc import Iterator
from contextlib import contextmanager

_running: list[str] = []


@contextmanager
def running(what: str) -> Iterator[None]:
    """Notes what runs until the end of the context: `is in model() of --model=mine:model`."""
    _running.append(what)
    try:
        yield
    finally:
        _running.pop()


def current() -> str | None:
    """What `running` noted last and is not over; can be asked by any thread."""
    return next(iter(_running[-1:]), None)
