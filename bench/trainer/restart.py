"""From the loss of one worker's process to training again: restart in place, against new processes for all.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/restart.py [--rounds 5] [--workers 2]

One job of digits runs under the launcher as the image starts it (it forks each start from what it has imported), one
under the same launcher without a preload (each start is a process of its own). A worker's process is killed with
SIGKILL, and the leader's log is watched: when it has the checkpoint, and when it shows the first new step. "All
processes again" is what happens without a launcher, as if pods took no time: all processes are killed and started again
at the moment of the loss.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import figures
from trainer.cluster import TRAINER, Job, free_ports, image_entrypoint

ARGUMENTS = ("--epochs=1000000", "--batch-size=48", "--checkpoint-every-steps=20", "--progress-every=0.05")


def start(job: Job) -> None:
    """All tasks, each with a status port, by which the launcher knows of progress."""
    for (role, index), port in zip(job.tasks, free_ports(len(job.tasks)), strict=True):
        job.start(f"{role}-{index}", environ={"DTJ_STATUS_PORT": str(port)})


def lose(job: Job, victim: int, *, launched: bool) -> tuple[float, float]:
    """Seconds from the loss to the restored checkpoint, and to the first new step."""
    since, began = len(job["worker-0"].log), time.monotonic()
    if launched:
        launcher = job[f"worker-{victim}"].process.pid
        (trainer,) = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        os.kill(int(trainer), signal.SIGKILL)
    else:
        job.kill()
        job.wait()
        start(job)
    job["worker-0"].wait_for(r"resumed: step \d+", since=since)
    resumed = time.monotonic() - began
    job["worker-0"].wait_for(r"resumed: step \d+ .*(\n.*)*?\nstep \d+", since=since)
    return resumed, time.monotonic() - began


def main() -> None:
    options = figures.parser(__doc__, rounds=(5, "kills of each way"), workers=(2, "of the job")).parse_args()
    entrypoint = image_entrypoint()
    ways: dict[str, Sequence[str]] = {
        "forked in place": entrypoint,
        "new in place": [word for word in entrypoint if not word.startswith("--preload")],
        "all processes anew": TRAINER,
    }
    seen: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for way in sorted(ways, reverse=bool(number % 2)):
                with Job(
                    Path(folder) / f"{way.replace(' ', '-')}-{number}",
                    strategy="MultiWorkerMirrored",
                    roles={"worker": options.workers},
                    arguments=ARGUMENTS,
                    program=ways[way],
                ) as job:
                    start(job)
                    job.wait_for_checkpoint(20)
                    seen[way].append(lose(job, number % options.workers, launched=ways[way] is not TRAINER))
    figures.print_machine()
    for way, times in seen.items():
        figures.print_figure(way, ", ".join(f"{a:.2f} / {b:.2f}" for a, b in times) + " s to checkpoint / first step")
    steps = {way: [step for _, step in times] for way, times in seen.items()}
    figures.print_ratio("forked to new", steps["forked in place"], steps["new in place"], target=None)
    figures.print_ratio("forked to all anew", steps["forked in place"], steps["all processes anew"], target=None)


if __name__ == "__main__":
    main()
