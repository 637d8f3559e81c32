"""The leader cannot write the checkpoint that ends the run: it is the cause, and the other workers are not."""

import json
import shutil
import signal
import socket
from pathlib import Path

import pytest

from trainer import endings
from trainer.cluster import Job
from trainer.conftest import SHORT

SESSION = """
import time

import tensorflow as tf

import dtj_trainer

with dtj_trainer.session() as s:
    with s.strategy.scope():
        number = tf.Variable(0.0)
    s.checkpoint(number=number)
    for _ in s.steps(100000):
        time.sleep(0.01)
"""


def spoil(job: Job) -> None:
    """Puts a file where the directory was."""
    job.checkpoints.rename(job.folder / "former")
    job.checkpoints.write_text("")


@pytest.mark.parametrize("asked_to_stop", [False, True])
def test_the_other_workers_end_with_75_and_one_line(folder: Path, asked_to_stop: bool) -> None:
    arguments = [*SHORT, *(["--epochs=100000"] if asked_to_stop else [])]
    with Job(folder, strategy="MultiWorkerMirrored", arguments=arguments, exports=False) as job:
        job.hold_at(20)
        job.start().wait_for_checkpoint(20)
        spoil(job)
        job.let_go()
        if asked_to_stop:
            job["worker-0"].wait_for("warning: .*Not a directory")
            job["worker-1"].kill(signal.SIGTERM)
        endings.check(job, "leader_that_cannot_save")
    assert job["worker-0"].last_words.startswith(f"checkpoint directory {job.checkpoints}: step ")


def test_so_do_those_of_a_session(folder: Path) -> None:
    with Job(folder, strategy="MultiWorkerMirrored", script=SESSION, imported=True) as job:
        job.start(environ={"DTJ_CHECKPOINT_EVERY_STEPS": "10"}).wait_for_checkpoint(20)
        spoil(job)
        job["worker-1"].kill(signal.SIGTERM)
        assert job.wait() == {"worker-0": 1, "worker-1": 75}
    assert job["worker-1"].last_words.startswith("peer lost: worker 0 cannot save step ")


def test_a_leader_that_ends_in_an_error_after_the_last_step_is_a_lost_peer(folder: Path) -> None:
    with Job(folder, strategy="MultiWorkerMirrored", arguments=SHORT) as job:
        job.hold_at(20)
        job.start().wait_for_checkpoint(20)
        shutil.rmtree(folder / "export", ignore_errors=True)
        (folder / "export").write_text("")
        job.let_go()
        assert job.wait() == {"worker-0": 1, "worker-1": 75}
    assert job["worker-1"].last_words.startswith("peer lost: worker 0 ")
    assert "Traceback" not in job["worker-1"].log


def test_storage_that_is_not_reachable_is_no_lost_peer_of_a_job_with_one_process() -> None:
    import tensorflow as tf

    from dtj_trainer.config.parsing import parse
    from dtj_trainer.distribution.strategies import lost_peer

    def of_workers(*addresses: str) -> dict[str, str]:
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}})}

    error = tf.errors.UnavailableError(None, None, "gs://bucket: 503")
    assert lost_peer(error, parse((), {})) is None
    assert lost_peer(error, parse((), of_workers("127.0.0.1:1"))) is None
    collective = ["--strategy=MultiWorkerMirrored"]
    assert lost_peer(error, parse(collective, of_workers("127.0.0.1:1", "127.0.0.1:2"))) is not None
    # Nobody calls an evaluator, also where a TF_CONFIG of one's own lists it.
    listed = {
        "cluster": {"chief": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]},
        "task": {"type": "chief", "index": 0},
    }
    assert lost_peer(error, parse((), {"TF_CONFIG": json.dumps(listed)})) is None
    elsewhere = lost_peer(error, parse(["--strategy=TPU"], {"TPU_NAME": "grpc://127.0.0.1:1"}))
    assert str(elsewhere).startswith("peer lost: TPU 0 not reachable; ")


def test_a_checkpoint_whose_values_a_lost_host_had_is_a_lost_peer(tmp_path: Path) -> None:
    import tensorflow as tf

    from dtj_trainer.checkpoint.manager import Store
    from dtj_trainer.checkpoint.state import State
    from dtj_trainer.config.parsing import parse
    from dtj_trainer.distribution.strategies import peer_loss
    from dtj_trainer.errors import NotSaved, PeerLost

    class Elsewhere(State):
        def write(self, *_: object) -> None:
            raise tf.errors.UnavailableError(None, None, "Socket closed")

    step = tf.Variable(0, dtype=tf.int64)
    store = Store(Elsewhere(weights=[], step=step, total_steps=step), tmp_path, keep=1, writes=True)

    def save_on_a_slice_with(*workers: str) -> None:
        cluster = {"chief": ["127.0.0.1:1"], "worker": workers}
        environ = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "chief", "index": 0}})}
        with peer_loss(parse(["--strategy=TPU"], environ)):
            store.save(1)

    with pytest.raises(PeerLost, match=r"^peer lost: worker 0 not reachable; UnavailableError: Socket closed$"):
        save_on_a_slice_with("127.0.0.1:2")
    with socket.create_server(("127.0.0.1", 0)) as host:
        what = r"step 1 cannot be saved \(Socket closed\); .*; see whether the volume and all tasks can be reached$"
        with pytest.raises(NotSaved, match=what):
            save_on_a_slice_with(f"127.0.0.1:{host.getsockname()[1]}")


def test_the_others_wait_at_the_end_for_longer_than_all_conversions_may_take() -> None:
    from dtj_trainer.config.outputs import FORMATS
    from dtj_trainer.distribution.agreement import end_seconds
    from dtj_trainer.export.conversion import LIMIT_SECONDS

    assert end_seconds(FORMATS) > len(FORMATS) * LIMIT_SECONDS + 3600
