"""Has a Python that the launcher starts print the stacks of all its threads on SIGQUIT, and find all of TF_CONFIG.

Found before any other module of this name, and runs that one as well: a distribution may have one of its own.
"""

import faulthandler
import importlib
import importlib.machinery
import importlib.util
import os
import signal
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))

if sys.stderr is not None:
    faulthandler.register(signal.SIGQUIT, all_threads=True)
if os.environ.get("DTJ_CLUSTER_COUNTS"):
    _packages, _package = os.path.split(os.path.dirname(_HERE))  # a copied folder may have any name
    sys.path.append(_packages)
    try:
        importlib.import_module(_package + ".tf_config").write_out(os.environ)
    finally:
        sys.path.remove(_packages)
_next = importlib.machinery.PathFinder.find_spec(
    "sitecustomize", [path for path in sys.path if os.path.abspath(path) != _HERE]
)
if _next is not None and _next.loader is not None:
    _module = importlib.util.module_from_spec(_next)
    sys.modules["sitecustomize"] = _module
    _next.loader.exec_module(_module)
