"""TensorFlow's servers without the rest of it: up in 0.4 s with 48 MiB of its own, not 2.4 s and 231.

A stand-in for the package `tensorflow`, with its path and without its code, lets its modules be imported one by one.
Must not import TensorFlow.
"""

# hashlib comes first: TensorFlow 2.20 for TPUs crashes where OpenSSL is loaded after it.
import hashlib  # noqa: F401
import importlib
import importlib.util
import logging
import sys
from types import ModuleType

from dtj_trainer.compat import incompatible

log = logging.getLogger(__name__)

_SERVER = "tensorflow.python.training.server_lib"
_DATA_SERVICE = "tensorflow.python.data.experimental.service.server_lib"
_ERRORS = "tensorflow.python.framework.errors_impl"


def server_library() -> ModuleType:
    """Where `Server` and `ClusterSpec` are."""
    return _library(_SERVER)


def data_service_library() -> ModuleType:
    """Where `DispatchServer` and `WorkerServer` are."""
    return _library(_DATA_SERVICE)


def errors_library() -> ModuleType:
    """Where `OpError` is; to be called after one of the others."""
    return _import(_ERRORS)


def _library(name: str) -> ModuleType:
    return lean_library(name) or _import(name)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise incompatible(str(error), library="tensorflow") from None


def lean_library(name: str) -> ModuleType | None:
    """One module of TensorFlow by itself; None where this TensorFlow does not allow that, and nothing is left of it."""
    if "tensorflow" in sys.modules:
        # A script has imported all of it before it came here.
        return None
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        return None
    package = ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    sys.modules["tensorflow"] = package
    try:
        return importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        log.info(f"the lean server does not fit this TensorFlow ({error}); starting the whole of it")
        del sys.modules["tensorflow"]
        return None
