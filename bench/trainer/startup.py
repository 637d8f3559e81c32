"""From the launch of a job of two workers to its first steps, and what that went into.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/startup.py [--rounds 5] [--workers 2]

The parts are those that the leader tells in its log at its first steps, which begin when its process does.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import figures
from trainer.cluster import Job


def parts(folder: Path, *, workers: int) -> dict[str, float]:
    """Part of the start -> seconds; `start` is the whole."""
    strategy = "MultiWorkerMirrored" if workers > 1 else "OneDevice"
    with Job(folder, strategy=strategy, roles={"worker": workers}, arguments=["--epochs=1"]) as job:
        job.start()
        told = job["worker-0"].wait_for(r"(?m)^start [\d.]+ s: .+$")[0]
        job.wait()
    whole, _, rest = told.partition(" s: ")
    laps = dict(lap.rsplit(" ", 1) for lap in (whole, *rest.split(", ")))
    return {name: float(seconds) for name, seconds in laps.items()}


def main() -> None:
    options = figures.parser(
        __doc__, rounds=(5, "how often each is measured"), workers=(2, "workers of the job")
    ).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = [parts(Path(folder) / str(number), workers=options.workers) for number in range(options.rounds)]
    figures.print_machine()
    for name in rounds[0]:
        seconds = [one[name] for one in rounds]
        figures.print_figure(name, f"{statistics.median(seconds):.1f} s ({', '.join(f'{s:.1f}' for s in seconds)})")


if __name__ == "__main__":
    main()
