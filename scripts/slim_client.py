"""Remove from the environment that runs this what the Kubernetes client brings and the operator never loads.

The client holds a class for each object and each group of the API, generated, and all of it twice: blocking and
asyncio. That is two thirds of the operator's environment. The operator speaks JSON over the client's transport, so
that a few of these modules are loaded (kopf names two classes), and the others can go. Used by the Dockerfile.
"""

from __future__ import annotations

import sys
from pathlib import Path

import kubernetes

import dtj.app.main
import dtj.cli.main

ENTRY_POINTS = (dtj.app.main, dtj.cli.main)
"""What the image can be asked to run; loading it loads all that is needed."""

GENERATED = ("client/api", "client/models", "aio/client/api", "aio/client/models")


def main() -> None:
    loaded = {module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    root = Path(kubernetes.__file__).parent
    unused = [path for folder in GENERATED for path in root.joinpath(folder).glob("*.py") if str(path) not in loaded]
    for path in unused:
        path.unlink()
    print(f"removed {len(unused)} modules of the Kubernetes client")


if __name__ == "__main__":
    main()
