"""Which versions a training runs with, for the log. Asks the installed packages, and imports none of them."""

import logging
import platform
from importlib.metadata import PackageNotFoundError, version

from dtj_launch import logs

log = logging.getLogger(__name__)

PACKAGES = ("dtj-trainer", "tensorflow", "tensorflow-cpu", "keras", "tf_keras", "numpy")


def log_versions(level: int) -> None:
    """Writes one line, which `dtj report` reads: `versions: python 3.11.9, tensorflow 2.21.0, ...`."""
    found = {"python": platform.python_version(), **_installed()}
    words = ", ".join(f"{name} {number}" for name, number in found.items())
    log.log(level, f"versions: {words}", extra=logs.fields(versions=found))


def _installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
