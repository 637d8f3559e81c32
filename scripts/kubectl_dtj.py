#!/usr/bin/env python3
"""The program `kubectl-dtj` of an archive for krew: runs dtj from the packages that lie beside it in `lib`.

Any Python 3 can read this file, to look for one that the packages are for, or to say which are.
"""

import os
import shutil
import sys

LIB = os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib")
TRIED = "DTJ_KREW_TRIED"
"""Set for a Python that another one has chosen, which chooses no third one."""


def main() -> int:
    """The exit status of dtj, or 2 with one line if no Python here has packages."""
    chosen = os.environ.pop(TRIED, None)
    packages = os.path.join(LIB, "cp{}{}".format(*sys.version_info[:2]))
    # Compiled packages are for the usual build of CPython: not for PyPy, and not for one without the global lock.
    if os.path.isdir(packages) and sys.implementation.name == "cpython" and not sys.abiflags:
        sys.path[:1] = [os.path.join(LIB, "any"), packages]
        from dtj.cli.main import main as run

        return run()
    names = ["python3." + name[3:] for name in sorted(os.listdir(LIB), reverse=True) if name.startswith("cp3")]
    other = next((found for found in map(shutil.which, names) if found), None)
    if other is None or chosen is not None:
        sys.stderr.write("kubectl dtj: needs CPython; install one of {}\n".format(", ".join(names)))
        return 2
    os.environ[TRIED] = other
    return os.execv(other, [other, os.path.abspath(__file__), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
