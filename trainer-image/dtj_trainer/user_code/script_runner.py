"""Runs a script as Python itself would, and reports its end as a job needs it.

The script is `__main__`: its folder comes first on `sys.path`, it gets its arguments, and the environment as
the operator set it. `sys.exit` ends with its code; an error shows the script's frames and ends with 1; what TensorFlow
raises when another task is gone ends with 75. Its exit handlers run and its threads are awaited, as always in Python.

Must not import TensorFlow: whether it is used is the script's affair.

All tasks begin with one seed, at every attempt. Workers that shuffle, split or begin otherwise each train on other
examples than they divide among them: some are seen twice in an epoch, others never. An attempt that splits otherwise
trains on examples that the next one holds out.
"""

import atexit
import functools
import importlib
import importlib.util
import logging
import os
import random
import runpy
import sys
from collections.abc import MutableMapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from dtj_launch import progress
from dtj_trainer import keras_fit
from dtj_trainer.compat import require_tf_keras
from dtj_trainer.config.script import Script
from dtj_trainer.errors import FOUND_TOGETHER, ExitCode, TrainerError, UsageError, may_pass
from dtj_trainer.keras_fit import alone
from dtj_trainer.process import environment, logs
from dtj_trainer.process.ending import error_text, leave_message
from dtj_trainer.process.imports import around_import, when_imported
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.process.watchdog import LastResort
from dtj_trainer.user_code import cluster_watch, communication

log = logging.getLogger(__name__)

_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"

_TOO_LATE = "Collective ops must be configured at program startup"
"""What TensorFlow says of a strategy of several workers that is made after something was computed."""
_TEAR_DOWN_SECONDS = 30.0
"""What the end of the interpreter may take after the script's own exit handlers; TensorFlow's part of it is 1 to 15."""


def prepare(script: Script, environ: MutableMapping[str, str]) -> None:
    """Sets the environment, and proves that there is something to run.

    Raises:
        UsageError: there is no such file or module, it cannot be read, or it is not Python; or the Keras that the
            environment asks for is not installed.
    """
    environ.update(script.environ)
    if environ.get(_LEGACY_KERAS) in ("1", "true", "True"):  # as TensorFlow reads it
        require_tf_keras(f"{_LEGACY_KERAS}={environ[_LEGACY_KERAS]} needs")
    environment.reach_tasks_directly(environ)
    environment.set_threads(environ)
    if script.path is None:
        sys.path.insert(0, os.getcwd())
        _check_module(script.name)
    else:
        sys.path.insert(0, str(script.path.resolve().parent))
        _check_file(script.name, script.path)


def _check_file(name: str, path: Path) -> None:
    try:
        compile(path.read_bytes(), name, "exec", dont_inherit=True)
    except FileNotFoundError:
        raise UsageError(
            f"--script={name}: no such file in {os.getcwd()}; mount or copy it there, or give its whole path",
            restart_may_help=True,
        ) from None
    except OSError as error:
        raise UsageError(
            f"--script={name}: cannot be read ({error.strerror}); give a file of Python code",
            restart_may_help=may_pass(error),
        ) from None
    except SyntaxError as error:
        line = f"line {error.lineno}: " if error.lineno else ""
        raise UsageError(f"--script={name}: {line}{error.msg}; give a file of Python code") from None
    except ValueError as error:  # null bytes, before Python 3.11.4
        raise UsageError(f"--script={name}: {error}; give a file of Python code") from None


def _check_module(name: str) -> None:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        missing = getattr(error, "name", None)
        if missing and not f"{name}.".startswith(f"{missing}."):
            raise UsageError(
                f"--script={name}: its package cannot be imported ({error}); install what it needs, or put it on "
                "PYTHONPATH",
                restart_may_help=True,
            ) from None
        raise UsageError(
            f"--script={name}: no such module ({error}); give the path of a file, ending in .py, or put the module "
            "on PYTHONPATH",
            restart_may_help=True,
        ) from None
    if found is None:
        raise UsageError(
            f"--script={name}: no such module; give the path of a file, ending in .py, or put the module on PYTHONPATH",
            restart_may_help=True,
        )


def run(script: Script, context: TaskContext) -> NoReturn:
    """Runs the script to its end.

    Raises:
        SystemExit: the script is over.
        TrainerError: so is the job, for a reason that is not the script's.
    """
    TaskContext.current = context
    context.progress_store.update(phase=progress.Phase.TRAINING)
    context.termination.listen_openly()
    sys.argv = [script.name, *script.arguments]
    if script.seed is not None:
        _begin_with_seed(script.seed)
        log.log(
            context.config.cluster.common_log_level,
            "random numbers of Python, NumPy, Keras and TensorFlow begin with the same seed on all tasks, at every "
            f"attempt: --seed={script.seed} gives them again",
        )
    if context.config.keras_override:
        keras_fit.install_when_imported(context.config)
    communication.give(context.config)
    together = alone.watch(context.config, script.name, context.progress_store)
    cluster_watch.watch(context.config, context.termination, together=together is not None)
    tear_down = _TearDown()
    try:
        if script.path is None:
            runpy.run_module(script.name, run_name="__main__", alter_sys=True)
        else:
            _run_file(script.path)
    except SystemExit as end:
        tear_down.code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not tear_down.code:
            _end_well(context, together)
        raise
    except FOUND_TOGETHER:
        _end_together(context)
        raise
    except TrainerError:
        raise
    except Exception as error:
        if ended := _end_by_others(error, context):
            raise ended from error
        text = error_text(error)
        if _TOO_LATE in text:
            raise UsageError(
                f"{text.splitlines()[0]}; make the MultiWorkerMirroredStrategy before any other TensorFlow operation, "
                "so before models, optimizers and metrics"
            ) from None
        logs.enable()
        log.error(text.splitlines()[0], exc_info=(type(error), error, _of_the_script(error.__traceback__)))
        leave_message(text)
        tear_down.code = int(ExitCode.FAILED)
    if not tear_down.code:
        _end_well(context, together)
    raise SystemExit(tear_down.code)


def _run_file(path: Path) -> None:
    """As Python itself runs a file: `__file__` is its whole path, and `sys.argv[0]`, unlike runpy's, what was given."""
    main, before = ModuleType("__main__"), sys.modules["__main__"]
    main.__file__ = os.path.abspath(path)
    sys.modules["__main__"] = main
    try:
        exec(compile(path.read_bytes(), main.__file__, "exec", dont_inherit=True), main.__dict__)
    finally:
        sys.modules["__main__"] = before


def _end_well(context: TaskContext, together: alone.Together | None) -> None:
    """What comes between the last line of a script and its exit handlers.

    Raises:
        UsageError: see `alone.Together.check_end`.
    """
    if together:
        together.check_end()
        if "tensorflow" in sys.modules:
            _end_together(context)


def _end_together(context: TaskContext) -> None:
    from dtj_trainer.compat import tensorflow as compat
    from dtj_trainer.distribution import agreement

    if compat.computes_alone() is False:
        agreement.end_together(context.config.cluster)


def _end_by_others(error: Exception, context: TaskContext) -> TrainerError | None:
    """What an error of TensorFlow's means for which another task is the cause, or which one is not there any more."""
    if "tensorflow" not in sys.modules or not context.config.cluster.addresses:
        return None
    from dtj_trainer.distribution import strategies

    return strategies.lost_peer(error, context.config)


def _of_the_script(at: TracebackType | None) -> TracebackType | None:
    """The frames from the script's own on."""
    while at is not None and at.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        at = at.tb_next
    return at


class _TearDown:
    """Sets a limit to what comes after the last exit handler, which is the first to register."""

    def __init__(self) -> None:
        self.code = int(ExitCode.DONE)
        atexit.register(self._limit)

    def _limit(self) -> None:
        LastResort(self.code).set(_TEAR_DOWN_SECONDS)


def _begin_with_seed(seed: int) -> None:
    """Seeds Python's random numbers, which both Kerases draw seeds from; NumPy's and TensorFlow's when imported."""
    random.seed(seed)
    # What these import may draw, and a start that the launcher forks has imported it before.
    for name in ("tensorflow", "keras"):
        around_import(name, lambda: functools.partial(random.setstate, random.getstate()))
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
