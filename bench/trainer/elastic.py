"""Workers that come, go and die under the launcher: for how long nobody trains, and whether the weights are the same.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/elastic.py [--rounds 3]

One job of digits under the launcher as the image starts it. The files from which the launchers learn who trains are
written here, in the place of operator and kubelet. *Gaps*: from the change to the leader's first new step, of workers
that wait by then, of a collective and of a parameter server. *Spare*: the same from the loss of one of two workers,
whose place a third takes that waits. *Weights*: after 198 steps of 58 examples, with 2, 3, 1 and 4 workers, and a
worker of each of these phases killed with SIGKILL, against 198 steps of two workers that nobody disturbs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import tensorflow as tf

import figures
from trainer.cluster import Job, image_entrypoint
from trainer.elastic_group import Group

EPOCHS = 8
PHASES = ((0, 1), (0, 1, 2), (1,), (0, 1, 2, 3))
"""Which workers train, in the order of time."""

ROLES = {"MultiWorkerMirrored": {"worker": 4}, "ParameterServer": {"chief": 1, "worker": 4, "ps": 1}}

_NEXT_STEP = r"resumed: step \d+ .*(\n.*)*?\nstep \d+"

SHAPE = ("--batch-size=58", "--checkpoint-every-steps=20", "--progress-every=0.05", "--steps-per-call=1")


@contextmanager
def group(folder: Path, arguments: Sequence[str], strategy: str) -> Iterator[tuple[Job, Group]]:
    """The launchers of four workers; the first two train."""
    program = image_entrypoint()
    options = [*SHAPE, *arguments]
    with Job(folder, strategy=strategy, roles=ROLES[strategy], arguments=options, program=program) as job:
        yield job, Group(job, PHASES[0])


def leader(job: Job, members: Sequence[int]) -> str:
    """Who reports the steps of these members."""
    return "chief-0" if "chief" in job.cluster else f"worker-{members[0]}"


def gaps(folder: Path, strategy: str) -> list[float]:
    """Seconds from each change of the members to the first new step."""
    found = []
    with group(folder, ["--epochs=1000000"], strategy) as (job, workers):
        job[leader(job, PHASES[0])].wait_for(r"\nstep \d+")
        for members in PHASES[1:]:
            said, began = workers.said(), time.monotonic()
            workers.change(members)
            workers.wait_for(_NEXT_STEP, leader(job, members), said)
            found.append(time.monotonic() - began)
            time.sleep(1.0)
    return found


def takeover(folder: Path) -> float:
    """Seconds from the loss of a worker to the first new step with the spare in its place."""
    with group(folder, ["--epochs=1000000"], "MultiWorkerMirrored") as (job, workers):
        job["worker-0"].wait_for(r"\nstep [4-9]\d/")  # there is a checkpoint by then
        said, began = workers.said(), time.monotonic()
        workers.kill(1, launcher=True)
        workers.change((0, 2), lost=(1,))
        workers.wait_for(_NEXT_STEP, "worker-0", said)
        return time.monotonic() - began


def weights(folder: Path, *, disturbed: bool) -> dict[str, np.ndarray]:
    """The weights in the last checkpoint."""
    with group(folder, [f"--epochs={EPOCHS}"], "MultiWorkerMirrored") as (job, workers):
        for number, members in enumerate(PHASES if disturbed else ()):
            if number:
                workers.change(members)  # the programs are asked to save while they wait behind a checkpoint
            step = 40 * number + 20
            job.hold_at(step)
            job.wait_for_checkpoint(step)
            said = workers.said()
            workers.kill(members[-1])
            job.hold_at(step + 20)
            workers.wait_for(r"resumed: step \d+", leader(job, members), said)
            job.wait_for_checkpoint(step + 20)
        if disturbed:
            job.let_go()
        ends = (0, 1, 2, 3) if disturbed else (0, 1)
        codes = {index: job[f"worker-{index}"].wait() for index in ends}
        if set(codes.values()) != {0}:
            sys.exit(f"ended with {codes}")
        reader = tf.train.load_checkpoint(str(job.checkpoints / f"ckpt-{job.newest_checkpoint}"))
        values = {
            name: reader.get_tensor(name)
            for name, kind in reader.get_variable_to_dtype_map().items()
            if kind.is_floating
        }
        return {name: value for name, value in values.items() if value.size}


def main() -> None:
    options = figures.parser(__doc__, rounds=(3, "how often each gap is measured")).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = {
            strategy: [gaps(Path(folder) / f"{strategy}-{number}", strategy) for number in range(options.rounds)]
            for strategy in ROLES
        }
        taken = [takeover(Path(folder) / f"spare-{number}") for number in range(options.rounds)]
        quiet = weights(Path(folder) / "quiet", disturbed=False)
        after = weights(Path(folder) / "disturbed", disturbed=True)
    figures.print_machine()
    for strategy, found in rounds.items():
        for (before, members), seconds in zip(pairwise(PHASES), zip(*found, strict=True), strict=True):
            name = f"{strategy}, {len(before)} to {len(members)} workers"
            figures.print_figure(name, ", ".join(f"{each:.2f}" for each in seconds) + " s to the first new step")
    figures.print_figure("a spare takes over", ", ".join(f"{each:.2f}" for each in taken) + " s to the first new step")
    difference = max(float(np.max(np.abs(quiet[name] - after[name]))) for name in quiet)
    figures.print_figure("weights", f"{difference:.1e} is the largest difference after {EPOCHS} epochs")


if __name__ == "__main__":
    main()
