"""`--loop=fit`: what callbacks count themselves goes on after a restart as without one."""

import re
import signal
from pathlib import Path

import numpy as np
import pytest

from trainer.cluster import PATH, Job
from trainer.outcome import points, tensors

pytestmark = pytest.mark.trainer

SCRIPTS = Path(__file__).parent / "scripts"
HERE = {"PYTHONPATH": f"{PATH}:{SCRIPTS}"}
ARGUMENTS = (
    "--loop=fit", "--model=overfits:build", "--data=overfits:dataset", "--callbacks=leaves:callbacks", "--no-shuffle",
    "--epochs=20", "--batch-size=16", "--steps-per-call=1", "--validate-every=epoch", "--checkpoint-every-steps=3",
)  # fmt: skip


def test_patience_best_values_and_numbers_of_a_users_callback_survive_restarts(folder: Path) -> None:
    with Job(folder / "whole", strategy="OneDevice", roles={"worker": 1}, arguments=ARGUMENTS, exports=False) as whole:
        assert whole.start(environ=HERE).wait() == {"worker-0": 0}
    with Job(folder / "left", strategy="OneDevice", roles={"worker": 1}, arguments=ARGUMENTS, exports=False) as left:
        codes = [left.start(environ={**HERE, "LEAVES": "1"}).wait()["worker-0"] for _ in range(4)]
    assert codes == [42, -signal.SIGKILL, -signal.SIGKILL, 0]
    seen, expected = (sorted(set(re.findall(r"^epoch .*", job["worker-0"].log, re.M))) for job in (left, whole))
    assert len(expected) < 40, "the training was not stopped early"
    assert seen == expected
    ends = [re.findall(r"^end .*", job["worker-0"].log, re.M) for job in (left, whole)]
    assert ends[0] == ends[1]
    assert left.newest_checkpoint == whole.newest_checkpoint
    saved = [tensors(job.checkpoints / f"ckpt-{job.newest_checkpoint}") for job in (left, whole)]
    assert saved[0] == saved[1]
    assert left.result["loss"] == whole.result["loss"], "the weights of the best epoch were not restored"
    curves = [points(job.folder / "logs" / "train")["loss"] for job in (left, whole)]
    assert curves[0] == curves[1]


def test_the_format_gives_back_what_it_was_given_and_takes_no_objects() -> None:
    import tensorflow as tf

    from dtj_trainer.training.callback_state import pack, unpack

    half = tf.constant([1.5, -2.0], tf.bfloat16).numpy()
    value = {1: [None, True, 3, -0.5, float("inf"), "text"], "b": (np.float32(0.1), np.arange(6).reshape(2, 3), half)}
    found = unpack(pack(value))
    assert found[1] == value[1]
    assert isinstance(found["b"], tuple)
    assert found["b"][0] == np.float32(0.1)
    assert (found["b"][1] == value["b"][1]).all()
    assert found["b"][2].dtype == half.dtype
    assert (found["b"][2] == half).all()
    for other in (object(), lambda: 1, np.array([object()]), {"a": {1, 2}}):
        with pytest.raises(TypeError):
            pack(other)
