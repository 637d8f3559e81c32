"""The ps and worker tasks of ParameterServer and Pipeline: a TensorFlow server that does what the coordinator says.

It never ends by itself: the operator stops it. SIGTERM ends a task of ParameterServer at once, since it has nothing
to save; for those of Pipeline see `dtj_trainer.gpipe.serving`.
"""

import importlib
import importlib.util
import sys
import threading
from types import ModuleType

from dtj_trainer.cluster import Cluster
from dtj_trainer.progress import Board, Phase


def serve(cluster: Cluster, board: Board) -> None:
    """Serves until the process is told to go; never returns."""
    start(cluster, board)
    threading.Event().wait()


def start(cluster: Cluster, board: Board) -> None:
    """Starts the server; it serves as long as the process lives."""
    board.update(phase=Phase.BUILDING)
    library = lean_library(_LIBRARY) or importlib.import_module(_LIBRARY)
    tasks: dict[str, list[str]] = {}
    for task, address in sorted(cluster.addresses.items()):
        tasks.setdefault(task.role, []).append(str(address))
    role, index = cluster.task.role, cluster.task.index
    server = library.Server(library.ClusterSpec(tasks), job_name=role, task_index=index, protocol="grpc", start=False)
    server.start()
    board.update(phase=Phase.TRAINING)
    print(f"{cluster.task}: serving {cluster.own_address}")


_LIBRARY = "tensorflow.python.training.server_lib"


def lean_library(name: str) -> ModuleType | None:
    """A library of TensorFlow's servers without the rest of it: up in 0.4 s with 48 MiB of its own, not 2.4 s and 231.

    A stand-in for the package `tensorflow`, with its path and without its code, lets its modules be imported one
    by one. None where this TensorFlow does not allow that; then nothing is left of the attempt.
    """
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
        print(f"the lean server does not fit this TensorFlow ({error}); starting the whole of it")
        del sys.modules["tensorflow"]
        return None
