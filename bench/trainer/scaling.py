"""What a second and a third worker bring, and what their all-reduce takes, for models of three sizes.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/scaling.py [--rounds 3] [--sizes "1 M"]

Each job is real trainer processes on loopback ports, each with one thread and 32 examples a step, so a perfect job
would take no longer for a step with more workers, as long as there is a core for each. What it takes longer than one
process is the all-reduce with all that comes with it; a third worker on two cores also waits for a core.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from scaled import WIDTHS

import figures
from trainer.cluster import SOURCE, Job

EXAMPLES = 32
SECONDS = 5.0
STEP_SECONDS = {"0.1 M": 0.009, "1 M": 0.03, "10 M": 0.25}
"""About, with two workers: so that each measurement takes as long."""


def step_seconds(folder: Path, *, size: str, workers: int) -> float:
    """What a step takes, by the rate that the trainer reports of its whole run but the first call."""
    steps = max(60, round(SECONDS / STEP_SECONDS[size]))
    batch = EXAMPLES * workers
    epochs = max(1, round(steps * batch / 3277))
    with Job(
        folder,
        strategy="MultiWorkerMirrored" if workers > 1 else "OneDevice",
        roles={"worker": workers},
        arguments=[
            "--model=scaled:build", "--data=scaled:dataset", f"--epochs={epochs}",
            f"--per-replica-batch-size={EXAMPLES}", "--checkpoint-every-seconds=100000",
        ],
    ) as job:  # fmt: skip
        job.start(
            environ={
                "BENCH_WIDTH": str(WIDTHS[size]),
                "OMP_NUM_THREADS": "1",
                "TF_NUM_INTRAOP_THREADS": "1",
                "TF_NUM_INTEROP_THREADS": "2",
                "PYTHONPATH": os.pathsep.join((str(SOURCE), str(Path(__file__).parent))),
            }
        )
        codes = job.wait(600)
        if any(codes.values()):
            raise SystemExit("\n".join(replica.log[-2000:] for replica in job.replicas.values()))
        return batch / float(job.result["examplesPerSecond"])


def main() -> None:
    parser = figures.parser(__doc__, rounds=(3, "how often each is measured"))
    parser.add_argument("--sizes", nargs="+", choices=WIDTHS, default=list(WIDTHS))
    options = parser.parse_args()
    ways = {"1 process": 1, "2 workers": 2, "3 workers": 3}
    with tempfile.TemporaryDirectory() as folder:
        figures.print_machine()
        for size in options.sizes:
            seen: dict[str, list[float]] = {way: [] for way in ways}
            for number in range(options.rounds):
                for way in sorted(ways, reverse=bool(number % 2)):
                    place = Path(folder) / f"{size}-{way}-{number}".replace(" ", "-")
                    seen[way].append(step_seconds(place, size=size, workers=ways[way]))
            print(f"{size} weights")
            alone = seen["1 process"]
            for way, each in seen.items():
                shares = [1 - one / several for one, several in zip(alone, each, strict=True)]
                figures.print_figure(
                    f"  {way}",
                    f"{1000 * statistics.median(each):.1f} ms a step ({', '.join(f'{1000 * s:.1f}' for s in each)})"
                    + (f"; beyond one process {statistics.median(shares):.0%}" if each is not alone else ""),
                )


if __name__ == "__main__":
    main()
