"""Every task that ships learns its data better than a guess does, alone and with parameter servers."""

import re
from pathlib import Path

import numpy as np
import pytest

from trainer.cluster import Job, ran

SERVERS = {"chief": 1, "worker": 2, "ps": 1}
DIABETES = ("--task=tabular-regression", "--batch-size=32", "--epochs=15")
REVIEWS = ("--task=text-classification", "--batch-size=32", "--epochs=3")
TUMOURS = ("--task=tabular-classification", "--batch-size=32", "--epochs=10")


def guessed(job: Job, dataset: str) -> dict[str, float]:
    """How good the best constant answer is on the held-out examples, by the names of the result."""
    from dtj_trainer.datasets import LOAD

    data = LOAD[dataset]()
    labels = data.validation.labels
    if not data.classes:
        return {"loss": float(np.var(labels)), "mean_absolute_error": float(np.abs(labels - np.median(labels)).mean())}
    return {"accuracy": float(np.bincount(labels).max() / len(labels))}


@pytest.mark.parametrize(
    ("arguments", "dataset", "accuracy"),
    [
        (TUMOURS, "breast-cancer", 0.93),
        (REVIEWS, "reviews", 0.67),
    ],
    ids=["breast-cancer", "reviews"],
)
def test_classes_are_learned(folder: Path, arguments: tuple[str, ...], dataset: str, accuracy: float) -> None:
    job = ran(folder, arguments=arguments)
    assert job.result["accuracy"] >= accuracy > guessed(job, dataset)["accuracy"] + 0.05
    assert job.result.keys() >= {"loss", "accuracy"}


def test_a_number_is_learned_and_reported_in_its_own_unit(folder: Path) -> None:
    job = ran(folder, arguments=DIABETES)
    guess = guessed(job, "diabetes")
    assert job.result["loss"] < 0.7 * guess["loss"]
    assert job.result["mean_absolute_error"] < 0.9 * guess["mean_absolute_error"]
    assert re.search(r"  loss \d+\.\d{4}  mean_absolute_error \d+\.\d{3}", job["worker-0"].log)
    assert re.search(r"^held-out: mean absolute error \d+\.\d{4}  loss \d+", job["worker-0"].log, re.M)


@pytest.mark.parametrize(
    ("arguments", "dataset"),
    [(DIABETES, "diabetes"), (REVIEWS, "reviews"), (TUMOURS, "breast-cancer")],
    ids=["diabetes", "reviews", "breast-cancer"],
)
def test_parameter_servers_learn_it_too(folder: Path, arguments: tuple[str, ...], dataset: str) -> None:
    schedule = ["--schedule=warmup-cosine", "--epochs=20"] if dataset == "diabetes" else []
    job = ran(folder, strategy="ParameterServer", roles=SERVERS, arguments=[*arguments, *schedule])
    guess = guessed(job, dataset)
    if "accuracy" in guess:
        assert job.result["accuracy"] > guess["accuracy"] + 0.05
    else:
        assert job.result["loss"] < 0.8 * guess["loss"]
        assert "adam  learning rate 0.003 after a warm-up of " in job["chief-0"].log


@pytest.mark.parametrize(
    "task",
    [
        ("--task=text-classification", "--epochs=2", "--batch-size=96"),
        ("--task=tabular-regression", "--epochs=25", "--batch-size=48"),
    ],
    ids=["text", "numbers"],
)
def test_two_workers_learn_what_one_process_learns(tmp_path: Path, task: tuple[str, ...]) -> None:
    arguments = [*task, "--optimizer=sgd", "--optimizer-options=momentum=0.9", "--schedule=warmup-cosine"]
    alone = ran(tmp_path / "alone", arguments=arguments)
    together = ran(tmp_path / "together", strategy="MultiWorkerMirrored", arguments=arguments)
    assert together.result["loss"] == pytest.approx(alone.result["loss"], rel=1e-3)
