"""The tf.data service by real processes: a dispatcher and data workers that read for the training tasks."""

import re
from pathlib import Path

import pytest

from loopback import free_ports
from trainer.cluster import SOON, Job, Replica
from trainer.data_files import write

ARGUMENTS = ("--batch-size=16", "--held-out=0.2", "--cache=none", "--checkpoint-every-steps=20", "--steps-per-call=5")


class Service:
    """A dispatcher and two data workers next to the tasks of a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        port, *self._ports = free_ports(3)
        self.environ = {"TF_DATA_SERVICE_ADDRESS": f"127.0.0.1:{port}"}

    def start(self, *names: str) -> None:
        """Starts those named, or all three."""
        for name in names or ("dispatcher-0", "data-worker-0", "data-worker-1"):
            role, _, index = name.rpartition("-")
            own = {"DTJ_HOST": "127.0.0.1", "DTJ_DATA_SERVICE_PORT": str(self._ports[int(index)])}
            self._job.replicas[name] = Replica(
                name,
                arguments=self._job.arguments,
                environ={
                    **self._job.environ(role, int(index)),
                    **self.environ,
                    **(own if role == "data-worker" else {}),
                },
                folder=self._job.folder,
                plain=self._job.plain,
            )


def job_of(folder: Path, *, workers: int, epochs: int, plain: bool = False) -> Job:
    """A job on 60 pictures."""
    strategy = "MultiWorkerMirrored" if workers > 1 else "OneDevice"
    arguments = [*ARGUMENTS, f"--epochs={epochs}", f"--data-dir={write(folder.parent / 'data', 'images')}"]
    return Job(folder, strategy=strategy, roles={"worker": workers}, arguments=arguments, plain=plain)


def test_two_workers_learn_from_what_data_workers_read(folder: Path) -> None:
    with job_of(folder, workers=2, epochs=4, plain=True) as job:
        service = Service(job)
        service.start()
        job.start(environ=service.environ)
        assert job["worker-0"].wait() == job["worker-1"].wait() == 0
        for name in ("data-worker-0", "data-worker-1"):
            job[name].wait_for(r"serving port \d+ of the tf.data service\n")
            assert job[name].process.poll() is None
            job[name].kill(15)
            assert job[name].wait(SOON) == 143
    assert job.result["steps"] == 12
    address = service.environ["TF_DATA_SERVICE_ADDRESS"]
    assert f"data: batches come from the tf.data service at {address}, in no repeatable order\n" in job["worker-0"].log
    assert "data:" not in job["worker-1"].log


def test_training_goes_on_without_a_data_worker_and_through_a_restart_of_the_dispatcher(folder: Path) -> None:
    with job_of(folder, workers=1, epochs=20) as job:
        service = Service(job)
        service.start()
        job.hold_at(20)
        job.start(environ=service.environ).wait_for_checkpoint(20)
        job["data-worker-1"].kill()
        job["dispatcher-0"].kill()
        assert job["dispatcher-0"].wait() == -9
        service.start("dispatcher-0")
        job["dispatcher-0"].wait_for(r"journal in \S+/checkpoints/data-service")
        job.let_go()
        assert job["worker-0"].wait() == 0
        assert job["data-worker-0"].process.poll() is None
    assert job.result["steps"] == 60


def test_a_service_without_data_workers_is_not_waited_for_without_end(folder: Path) -> None:
    with job_of(folder, workers=1, epochs=1) as job:
        service = Service(job)
        service.start("dispatcher-0")
        job.start(environ=service.environ, arguments=["--stall-timeout=5"])
        assert job["worker-0"].wait() == 75
    assert job["worker-0"].last_words.startswith("no step was finished for 5 s (--stall-timeout): the tf.data service")


@pytest.mark.parametrize("name", ["worker-0", "data-worker-0"])
def test_a_dispatcher_that_never_comes_is_named(folder: Path, name: str) -> None:
    with job_of(folder, workers=1, epochs=1) as job:
        job.arguments.append("--start-timeout=1")
        service = Service(job)
        if name == "worker-0":
            job.start(environ=service.environ)
        else:
            service.start(name)
        assert job[name].wait() == 75
    address = service.environ["TF_DATA_SERVICE_ADDRESS"]
    assert re.search(rf"start gate: 1 of 1 peers missing .*: dispatcher .* at {address}", job[name].last_words)
