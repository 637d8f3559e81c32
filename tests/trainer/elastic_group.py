"""Workers under their launchers that train together as a test says, in the place of operator and kubelet."""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from loopback import free_ports
from trainer.cluster import Job


class Group:
    """The workers of a job that runs the launcher, of which files say who trains. The job's context ends them."""

    def __init__(self, job: Job, members: Sequence[int]) -> None:
        """Starts all of them.

        Args:
            members: who trains first; the others wait.
        """
        self._job = job
        self._generation = 0
        self._write(members)
        for (role, index), port in zip(job.tasks, free_ports(len(job.tasks)), strict=True):
            file = str(self._file(index))
            environ = {"DTJ_STATUS_PORT": str(port), "DTJ_WORLD_FILE": file, "DTJ_JOB_UID": "uid"}
            job.start(f"{role}-{index}", environ=environ)
        for _, index in job.tasks:
            if index not in members:
                job[f"worker-{index}"].wait_for("waiting, with all that is imported")
        self._members = members

    def change(self, members: Sequence[int]) -> None:
        """Tells all of them who trains now, and waits until those that train have heard of it."""
        said = self.said()
        self._generation += 1
        self._write(members)
        for index in self._members:
            self.wait_for("the job goes on with other members", index, said)
        self._members = members

    def kill(self, index: int) -> None:
        """Ends the program of a worker, as the kernel would."""
        launcher = self._job[f"worker-{index}"].process.pid
        (trainer,) = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
        os.kill(int(trainer), signal.SIGKILL)

    def said(self) -> dict[int, int]:
        """The lengths of the logs."""
        return {index: len(self._job[f"worker-{index}"].log) for _, index in self._job.tasks}

    def wait_for(self, pattern: str, index: int, said: Mapping[int, int]) -> None:
        """Waits until the log of a worker has a match after this place in it."""
        self._job[f"worker-{index}"].wait_for(pattern, since=said[index])

    def _file(self, index: int) -> Path:
        return Path(self._job.folder, f"world-{index}")

    def _write(self, members: Sequence[int]) -> None:
        addresses = [self._job.cluster["worker"][member] for member in members]
        content = {
            "generation": self._generation,
            "members": {"worker": ",".join(map(str, members))},
            "addresses": {"worker": addresses},
        }
        for _, index in self._job.tasks:
            draft = self._file(index).with_suffix(".draft")
            draft.write_text(json.dumps(content))
            draft.replace(self._file(index))
