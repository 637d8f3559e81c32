"""How long does a person wait for the command line?

    PYTHONPATH=operator python bench/cli.py

Help, the version, a Tab, and the commands that check a manifest, each in a fresh process: median and least of several
rounds, in wall-clock and CPU time. Python finds its bytecode, as after `pip install`. Needs no control plane.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import figures

ROOT = Path(__file__).parents[1]
COMMANDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "python -c pass": ([], {}),
    "dtj --help": (["--help"], {}),
    "dtj --version": (["--version"], {}),
    "dtj st<Tab>": ([], {"_DTJ_COMPLETE": "bash_complete", "COMP_WORDS": "dtj st", "COMP_CWORD": "1"}),
    "dtj run --<Tab>": ([], {"_DTJ_COMPLETE": "bash_complete", "COMP_WORDS": "dtj run --", "COMP_CWORD": "2"}),
    "dtj validate examples/digits.yaml": (["validate", "examples/digits.yaml"], {}),
    "dtj explain examples/digits.yaml": (["explain", "examples/digits.yaml"], {}),
}


def main() -> None:
    rounds = figures.parser(__doc__, rounds=(11, "how often each is measured")).parse_args().rounds
    figures.print_machine()
    print(f"{'command':<36} wall, median (min)   CPU, median (min)")
    with tempfile.TemporaryDirectory() as bytecode:
        for name, (words, environment) in COMMANDS.items():
            program = ["-m", "dtj.cli.main", *words] if name.startswith("dtj") else ["-c", "pass"]
            variables = {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": "", **environment}
            times = [_timed([sys.executable, *program], variables) for _ in range(1 + rounds)]
            wall, cpu = zip(*times[1:], strict=True)  # the first writes the bytecode
            print(f"{name:<36} {_shown(wall)}      {_shown(cpu)}")


def _shown(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):5.2f} s ({min(seconds):.2f} s)"


def _timed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the clock, and of CPU, that a command takes. Raises CalledProcessError."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env={**os.environ, **environment}, cwd=ROOT, check=True, capture_output=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
