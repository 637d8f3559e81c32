"""The functions of the engine, in each of which something may go wrong, and how it does."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import dtj.engine
import dtj.kube

_LEFT_OUT: Final = frozenset(
    {
        "dtj.engine.supervision",
        "dtj.engine.queue",
        "dtj.engine.metrics",
        "dtj.engine.logs",
        "dtj.engine.profile_file",
        "dtj.kube.blockers",
        "dtj.kube.errors",
        "dtj.kube.waiting",
        "dtj.kube.observed",
        "dtj.kube.records",
        "dtj.kube.decoding",
        "dtj.kube.job_body",
        "dtj.kube.gateway",
        "dtj.kube.port_forward",
        "dtj.kube.pod_logs",
        "dtj.kube.rbac",
        "dtj.kube.config",
        "dtj.kube.lease",
        "dtj.kube.tfjob_schema",
    }
)
"""What holds the others together, what makes an object unreadable where it raises, and what no engine calls."""

_OUTERMOST: Final = re.compile(
    r"Engine\.(run|_run|stop|synced|supervise|_finish|_is_complete|_where_complete|_plan_all|_make\w+)$|Controller\._done$|"
    r"JobFeed\.(put|remove|relist_soon|_note)$|KubeGateway\.(close|connect)$|EventRecorder\.flush$|(TakingTurns|FairShare)\.\w+$|"
    r"Informer\._tell$"
)
"""What makes and ends an engine, what is called from outside of it, what the queue is made of, and what undoes the half
work of an error."""


def _modules() -> Iterator[ModuleType]:
    for package in (dtj.engine, dtj.kube):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if found.name not in _LEFT_OUT:
                yield importlib.import_module(found.name)


def _functions() -> Iterator[str]:
    for module in _modules():
        for name, found in sorted(vars(module).items()):
            if getattr(found, "__module__", None) != module.__name__:
                continue
            if isinstance(found, FunctionType):
                yield f"{module.__name__}:{name}"
            elif inspect.isclass(found) and not issubclass(found, BaseException):
                for method, of in sorted(vars(found).items()):
                    if (
                        isinstance(of, FunctionType)
                        and not method.startswith("__")
                        and not _OUTERMOST.match(f"{name}.{method}")
                    ):
                        yield f"{module.__name__}:{name}.{method}"


FUNCTIONS: Final = tuple(_functions())
MADE: Final = "made by a test"
ERRORS: Final = {error.__name__: error for error in (ZeroDivisionError, RecursionError, KeyError, TimeoutError)}


@contextmanager
def raising(where: str, call: int, error: str) -> Iterator[list[int]]:
    """Within the block, this call of that function raises. Yields a list that has one entry for each call."""
    module, _, name = where.partition(":")
    owner: Any = sys.modules[module]
    *outer, last = name.split(".")
    for each in outer:
        owner = getattr(owner, each)
    function = vars(owner)[last]
    calls: list[int] = []
    wrapped = _wrapped(function, calls, call, ERRORS[error])
    places = [(owner, last)] if outer else [
        (there, key) for there in list(sys.modules.values()) if getattr(there, "__name__", "").startswith("dtj.")
        for key, value in list(vars(there).items()) if value is function
    ]  # fmt: skip
    for there, key in places:
        setattr(there, key, wrapped)
    try:
        yield calls
    finally:
        for there, key in places:
            setattr(there, key, function)


def _wrapped(function: Callable[..., Any], calls: list[int], call: int, error: type[Exception]) -> Callable[..., Any]:
    def count() -> None:
        calls.append(1)
        if len(calls) == call:
            raise error(MADE)

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def generate(*arguments: Any, **options: Any) -> Any:
            count()
            async for each in function(*arguments, **options):
                yield each

        return generate
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait(*arguments: Any, **options: Any) -> Any:
            count()
            return await function(*arguments, **options)

        return wait

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        count()
        return function(*arguments, **options)

    return run
