"""Workers under their launchers that train together as a test or a benchmark says, in the place of the operator."""

import json
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from loopback import free_ports
from trainer.cluster import Job


class Group:
    """The tasks of a job that runs the launcher. Files say which workers train. The job's context ends all of them."""

    def __init__(self, job: Job, members: Sequence[int]) -> None:
        """Starts all of them.

        Args:
            members: the workers that train first; the others wait.
        """
        self._job = job
        self._generation = 0
        self._write(members)
        for (role, index), port in zip(job.tasks, free_ports(len(job.tasks)), strict=True):
            world = {} if role == "ps" else {"DTJ_WORLD_FILE": str(self._file(f"{role}-{index}"))}
            job.start(f"{role}-{index}", environ={"DTJ_STATUS_PORT": str(port), "DTJ_JOB_UID": "uid", **world})
        for role, index in job.tasks:
            if role == "worker" and index not in members:
                job[f"worker-{index}"].wait_for("waiting until the operator makes this task a member")
        self._members = members

    def change(self, members: Sequence[int], *, lost: Collection[int] = ()) -> None:
        """Tells all of them who trains now, and waits until those that train and are not lost have heard of it.

        With a chief, it alone starts again; the workers serve on.
        """
        said = self.said()
        self._generation += 1
        self._write(members)
        for name in {"chief-0"} & said.keys() or {f"worker-{index}" for index in {*self._members} - {*lost}}:
            self.wait_for("the job goes on with other members", name, said)
        self._members = members

    def kill(self, index: int, *, launcher: bool = False) -> None:
        """Ends the program of a worker, as the kernel would; with its launcher, as the loss of its pod does."""
        process = self._job[f"worker-{index}"].process
        (trainer,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if launcher:
            process.kill()
        os.kill(int(trainer), signal.SIGKILL)

    def said(self) -> dict[str, int]:
        """The lengths of the logs."""
        return {name: len(replica.log) for name, replica in self._job.replicas.items()}

    def wait_for(self, pattern: str, replica: str, said: Mapping[str, int]) -> None:
        """Waits until the log of a replica has a match after this place in it."""
        self._job[replica].wait_for(pattern, since=said[replica])

    def _file(self, replica: str) -> Path:
        return Path(self._job.folder, f"world-{replica}")

    def _write(self, members: Sequence[int]) -> None:
        cluster = self._job.cluster
        indexes = {**{role: range(len(listed)) for role, listed in cluster.items()}, "worker": members}
        content = {
            "generation": self._generation,
            "members": {role: ",".join(map(str, listed)) for role, listed in indexes.items()},
            "addresses": {role: [cluster[role][index] for index in listed] for role, listed in indexes.items()},
        }
        for role, index in self._job.tasks:
            file = self._file(f"{role}-{index}")
            draft = file.with_suffix(".draft")
            draft.write_text(json.dumps(content))
            draft.replace(file)
