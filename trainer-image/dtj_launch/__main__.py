"""`python -m dtj_launch`, or `python3 FOLDER` where the folder was copied somewhere."""

import importlib
import os
import sys


def _package() -> str:
    """This folder as a package, also where it has no place in any."""
    if __package__:
        return __package__
    folder = os.path.dirname(os.path.abspath(__file__))
    # Python has put the folder itself first; its modules are no top-level ones.
    sys.path[0] = os.path.dirname(folder)
    try:
        return importlib.import_module(os.path.basename(folder)).__name__
    finally:
        sys.path[0] = os.getcwd()


if __name__ == "__main__":
    sys.exit(importlib.import_module(_package() + ".agent").main())
