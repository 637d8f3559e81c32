"""What a model was compiled with is shown: during the training and of held-out data, the same on any strategy."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer.cluster import NO_EXPORT, PATH, Job
from trainer.outcome import assert_training_curves, points

pytestmark = pytest.mark.trainer

ARGUMENTS = ("--no-shuffle", "--epochs=3", "--batch-size=24", "--steps-per-call=4")
HERE = {"PYTHONPATH": f"{PATH}:{Path(__file__).parent}", "CUDA_VISIBLE_DEVICES": "", **NO_EXPORT}
ONE, TWO = {"worker": 1}, {"worker": 2}


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of the parity table can be imported here as the trainer imports them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def by_keras(model: str, data: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """What plain Keras says in the last epoch, and of the held-out examples."""
    import keras
    import parity_models

    keras.utils.set_random_seed(0)
    made, parts = getattr(parity_models, model)(), getattr(parity_models, data)()
    history = made.fit(parts["training"].batch(24), epochs=3, shuffle=False, verbose=0).history
    score = made.evaluate(parts["held_out"].batch(24), return_dict=True, verbose=0)
    return {name: values[-1] for name, values in history.items()}, score


# The model `metrics` is in test_validation.py: one job shows its curves and its validation.
@pytest.mark.parametrize(("model", "data"), [("several", "pairs")])
@pytest.mark.parametrize(
    ("strategy", "roles", "loop"),
    [
        ("OneDevice", ONE, "custom"),
        ("Mirrored", ONE, "fit"),
        ("CentralStorage", ONE, "custom"),
        ("MultiWorkerMirrored", TWO, "custom"),
        ("MultiWorkerMirrored", TWO, "fit"),
    ],
    ids=str,
)
def test_metrics_are_those_of_keras(
    folder: Path, model: str, data: str, strategy: str, roles: Mapping[str, int], loop: str
) -> None:
    arguments = [*ARGUMENTS, f"--model=parity_models:{model}", f"--data=parity_models:{data}", f"--loop={loop}"]
    if strategy in ("Mirrored", "CentralStorage"):
        arguments.append("--logical-cpus=2")
    with Job(folder, strategy=strategy, roles=roles, arguments=arguments) as job:
        assert set(job.start(environ=HERE).wait().values()) == {0}
    last, score = by_keras(model, data)
    for name, value in score.items():
        assert job.result[name] == pytest.approx(value, abs=1e-5), name
    assert_training_curves(job, last, loop)


def test_the_area_under_a_curve_is_that_of_keras_over_the_examples_of_all_workers(folder: Path) -> None:
    data = "--data=parity_models:yes_or_no"
    arguments = [*ARGUMENTS, "--model=parity_models:area_under_curve", data, "--loop=fit"]
    with Job(folder, strategy="MultiWorkerMirrored", roles=TWO, arguments=arguments) as job:
        assert set(job.start(environ=HERE).wait().values()) == {0}
    last, score = by_keras("area_under_curve", "yes_or_no")
    curves = points(folder / "logs" / "train")
    for name in ("area", "precision"):
        assert curves[name][12] == pytest.approx(last[name], abs=1e-5), name
        assert job.result[name] == pytest.approx(score[name], abs=1e-5), name


def test_the_metrics_of_a_train_step_of_ones_own_are_shown(folder: Path) -> None:
    arguments = [*ARGUMENTS, "--model=parity_models:own_mean", "--data=parity_models:points", "--loop=fit"]
    with Job(folder, strategy="OneDevice", roles=ONE, arguments=arguments) as job:
        assert job.start(environ=HERE).wait() == {"worker-0": 0}
    last, _ = by_keras("own_mean", "points")
    assert points(folder / "logs" / "train")["loss"][12] == pytest.approx(last["loss"], abs=1e-5)


def test_a_train_step_that_tracks_its_loss_shows_that_of_the_global_batch(folder: Path) -> None:
    arguments = [*ARGUMENTS, "--model=parity_models:tracking_step", "--data=parity_models:points", "--loop=fit"]
    with Job(folder, strategy="MultiWorkerMirrored", roles=TWO, arguments=arguments) as job:
        assert set(job.start(environ=HERE).wait().values()) == {0}
    last, _ = by_keras("tracking_step", "points")
    curves = points(folder / "logs" / "train")
    for name in ("tracked", "right"):
        assert curves[name][12] == pytest.approx(last[name], abs=1e-5), name
    assert "norm" in last
    assert "TrackingStep.train_step returns norm, which is not shown; update a metric" in job["worker-0"].log


def test_a_metric_that_a_layer_updates_is_named_and_not_shown(folder: Path) -> None:
    arguments = [*ARGUMENTS, "--model=parity_models:watched_layer", "--data=parity_models:points"]
    with Job(folder, strategy="OneDevice", roles=ONE, arguments=arguments) as job:
        worker = job.start(environ=HERE)["worker-0"]
        assert worker.wait() == 0
    assert "watched_layer: size cannot be shown, because the model updates it when it is called" in worker.log
