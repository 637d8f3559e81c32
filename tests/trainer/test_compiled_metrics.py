"""What a model was compiled with is shown: during the training and of held-out data, the same on any strategy."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer.cluster import NO_EXPORT, PATH, Job
from trainer.outcome import assert_training_curves

ARGUMENTS = ("--no-shuffle", "--epochs=3", "--batch-size=24", "--steps-per-call=4", "--validate-every=epoch")
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
    ("strategy", "roles"),
    [("OneDevice", ONE), ("Mirrored", ONE), ("CentralStorage", ONE), ("MultiWorkerMirrored", TWO)],
    ids=str,
)
def test_metrics_are_those_of_keras(
    folder: Path, model: str, data: str, strategy: str, roles: Mapping[str, int]
) -> None:
    arguments = [*ARGUMENTS, f"--model=parity_models:{model}", f"--data=parity_models:{data}"]
    if strategy in ("Mirrored", "CentralStorage"):
        arguments.append("--logical-cpus=2")
    with Job(folder, strategy=strategy, roles=roles, arguments=arguments) as job:
        assert set(job.start(environ=HERE).wait().values()) == {0}
    last, score = by_keras(model, data)
    for name, value in score.items():
        assert job.result[name] == pytest.approx(value, abs=1e-5), name
    assert_training_curves(job, last)


def test_the_area_under_a_curve_is_that_of_keras_over_the_examples_of_all_workers(folder: Path) -> None:
    data = "--data=parity_models:yes_or_no"
    arguments = [*ARGUMENTS, "--model=parity_models:area_under_curve", data]
    with Job(folder, strategy="MultiWorkerMirrored", roles=TWO, arguments=arguments) as job:
        assert set(job.start(environ=HERE).wait().values()) == {0}
    last, score = by_keras("area_under_curve", "yes_or_no")
    assert_training_curves(job, {name: last[name] for name in ("area", "precision")})
    for name in ("area", "precision"):
        assert job.result[name] == pytest.approx(score[name], abs=1e-5), name


def test_a_metric_that_a_layer_updates_is_named_and_not_shown(folder: Path) -> None:
    arguments = [*ARGUMENTS, "--model=parity_models:watched_layer", "--data=parity_models:points"]
    with Job(folder, strategy="OneDevice", roles=ONE, arguments=arguments) as job:
        worker = job.start(environ=HERE)["worker-0"]
        assert worker.wait() == 0
    assert "watched_layer: size cannot be shown, because the model updates it when it is called" in worker.log
