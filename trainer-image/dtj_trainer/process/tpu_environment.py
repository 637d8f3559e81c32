"""What libtpu and TensorFlow read when TensorFlow is imported, on the hosts of a TPU and on what drives them.

Read in their sources and never run on a TPU. Must not import TensorFlow.
"""

import importlib.util
from collections.abc import MutableMapping
from pathlib import Path

from dtj_trainer.config.cluster import CHIEF, WORKER
from dtj_trainer.config.parsing import Config


def prepare(config: Config, environ: MutableMapping[str, str]) -> None:
    """Sets it for strategy TPU; what the user set stays."""
    if config.strategy != "TPU" or config.cluster.task.role not in (CHIEF, WORKER):
        return
    if config.tpu_runtimes and not config.hosts_tpu:
        # The TPU is elsewhere; a script finds it by the name that TensorFlow reads.
        environ.setdefault("TPU_LOAD_LIBRARY", "0")
        environ.setdefault("TPU_NAME", config.tpu_name)
        return
    if library := _library():
        # The runtime of v5e and later (PJRT): TensorFlow takes the older one by itself.
        environ.setdefault("NEXT_PLUGGABLE_DEVICE_USE_C_API", "true")
        environ.setdefault("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", library)
        environ.setdefault("TPU_LIBRARY_PATH", library)
    names = environ.get("TPU_WORKER_HOSTNAMES", "").split(",")
    number = environ.get("TPU_WORKER_ID", "")
    if config.hosts_tpu and number.isdecimal() and int(number) < len(names):
        environ.setdefault("TPU_HOSTNAME_OVERRIDE", names[int(number)])


def _library() -> str:
    """The file of libtpu, of the package that the image for TPUs has; empty without it."""
    found = importlib.util.find_spec("libtpu")
    folders = found.submodule_search_locations if found is not None else None
    files = [Path(folder, "libtpu.so") for folder in folders or ()]
    return next((str(file) for file in files if file.exists()), "")
