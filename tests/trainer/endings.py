"""How runs end that cannot go on: the lines of docs/parity.md, which tests of real processes compare with `check`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.cluster import Job


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """One run, and how each of its tasks ends.

    Attributes:
        what: the run, for a person.
        where: the tasks.
        tasks: name of a task -> exit code, and pattern that its last words begin with; of those that end by themselves.
    """

    what: str
    where: str
    tasks: Mapping[str, tuple[int, str]]


STALLED = r"no step was finished for \d+ s \(--stall-timeout\): "
_DIFFERENT = "data: worker 0 has 160 training examples, worker 1 has 128; "
ENDINGS: Mapping[str, RunEnd] = {
    "data_that_block": RunEnd(
        what="data that block on worker 1",
        where="2 workers",
        tasks={
            "worker-0": (75, f"{STALLED}worker 1 waits in a step, after "),
            "worker-1": (1, f"{STALLED}waits in a step, after "),
        },
    ),
    "data_that_block_under_parameter_server": RunEnd(
        what="data that block on worker 0",
        where="ParameterServer",
        tasks={"chief-0": (75, f"{STALLED}worker 0 waits in a step")},
    ),
    "workers_that_are_silent": RunEnd(
        what="workers that do not answer",
        where="ParameterServer, custom",
        tasks={"chief-0": (75, f"{STALLED}worker 0 does not answer, worker 1 does not answer")},
    ),
    "stage_that_hangs": RunEnd(
        what="a layer that never ends",
        where="Pipeline",
        tasks={"worker-0": (75, f"{STALLED}worker 1 computes stage 1 and does not finish")},
    ),
    "data_that_block_under_pipeline": RunEnd(
        what="data that block",
        where="Pipeline",
        tasks={"worker-0": (1, f"{STALLED}waits for its data")},
    ),
    "data_of_different_length": RunEnd(
        what="data of worker 1 that are shorter",
        where="2 workers, custom",
        tasks={"worker-0": (2, _DIFFERENT), "worker-1": (2, _DIFFERENT)},
    ),
    "leader_that_cannot_save": RunEnd(
        what="a leader that cannot save",
        where="2 workers, custom",
        tasks={
            "worker-0": (1, "checkpoint directory .*: step "),
            "worker-1": (75, "peer lost: worker 0 cannot save step "),
        },
    ),
}


def check(job: Job, name: str) -> None:
    """Waits until the tasks have ended, and compares how."""
    ending = ENDINGS[name]
    assert {task: job[task].wait() for task in ending.tasks} == {task: code for task, (code, _) in ending.tasks.items()}
    for task, (_, line) in ending.tasks.items():
        assert re.match(line, job[task].last_words), job[task].last_words
        assert "Traceback" not in job[task].log
