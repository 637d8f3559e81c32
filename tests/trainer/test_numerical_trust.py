"""The same global batch, the same losses: every synchronous strategy against one device, step by step.

The losses are those of TensorBoard's curve at `--steps-per-call=1`, which has a point for every step.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer.cluster import Job
from trainer.outcome import points

STEPS = 106
UNEVEN_BATCH = 41
"""No number of replicas from 2 to 4 divides it: their shares differ by an example."""
EVERY_STEP = ("--epochs=3", f"--batch-size={UNEVEN_BATCH}", "--learning-rate=0.0005", "--steps-per-call=1")
TWO_DEVICES = ("--logical-cpus=2",)


def losses(folder: Path) -> Mapping[int, float]:
    """Step -> mean loss over the examples of that step."""
    return points(folder / "logs" / "train")["loss"]


def largest_difference(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    assert one.keys() == other.keys()
    return max(abs(one[step] - other[step]) for step in one)


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, float]:
    """The losses of an uninterrupted run on one device."""
    folder = tmp_path_factory.mktemp("one-device")
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=EVERY_STEP, exports=False) as job:
        assert job.start().wait() == {"worker-0": 0}
    curve = losses(folder)
    assert list(curve) == list(range(1, STEPS + 1))
    assert curve[STEPS] < curve[1] / 2, "a curve that does not fall proves nothing"
    return curve


@pytest.mark.parametrize(
    ("strategy", "roles", "arguments"),
    [
        ("Mirrored", {"worker": 1}, TWO_DEVICES),
        ("CentralStorage", {"worker": 1}, TWO_DEVICES),
        ("MultiWorkerMirrored", {"worker": 1}, ()),
        ("MultiWorkerMirrored", {"worker": 2}, ()),
        ("MultiWorkerMirrored", {"worker": 3}, ()),
        ("MultiWorkerMirrored", {"chief": 1, "worker": 1}, ()),
    ],
    ids=str,
)
def test_every_loss_of_a_hundred_steps_is_that_of_one_device(
    folder: Path,
    one_device: Mapping[int, float],
    strategy: str,
    roles: Mapping[str, int],
    arguments: tuple[str, ...],
) -> None:
    plain = strategy == "CentralStorage"  # which no other test starts as in a pod
    with Job(
        folder,
        strategy=strategy,
        roles=roles,
        arguments=[*EVERY_STEP, *arguments],
        plain=plain,
        exports=arguments == TWO_DEVICES,  # once under Mirrored and once under CentralStorage
    ) as job:
        assert set(job.start().wait().values()) == {0}
    assert largest_difference(losses(folder), one_device) <= 1e-5
    assert (folder / "export" / "1" / "saved_model.pb").exists() == (arguments == TWO_DEVICES)
