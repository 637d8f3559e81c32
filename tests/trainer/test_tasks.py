"""Every task that ships learns its data better than a guess does, alone and with parameter servers."""

import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.cluster import Job, ran
from trainer.outcome import tensors

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


def served(job: Job, *inputs: Any) -> dict[str, Any]:
    """What the exported model answers."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(job.folder / "export" / "1"))
    answer = loaded.signatures["serving_default"](inputs=tf.constant(*inputs))
    return {name: value.numpy() for name, value in answer.items()}


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


def test_a_number_is_learned_and_reported_and_served_in_its_own_unit(folder: Path) -> None:
    from dtj_trainer.datasets import diabetes

    job = ran(folder, arguments=DIABETES)
    guess = guessed(job, "diabetes")
    assert job.result["loss"] < 0.7 * guess["loss"]
    assert job.result["mean_absolute_error"] < 0.9 * guess["mean_absolute_error"]
    assert re.search(r"  loss \d+\.\d{4}  mean_absolute_error \d+\.\d{3}", job["worker-0"].log)
    assert re.search(r"^held-out: mean absolute error \d+\.\d{4}  loss \d+", job["worker-0"].log, re.M)

    validation = diabetes().validation
    answer = served(job, validation.inputs)["value"]
    assert np.abs(answer - validation.labels).mean() == pytest.approx(job.result["mean_absolute_error"], rel=1e-4)


def test_the_exported_text_model_takes_texts(folder: Path) -> None:
    from dtj_trainer.datasets import reviews

    job = ran(folder, arguments=REVIEWS)
    validation = reviews().validation
    answer = served(job, validation.inputs.tolist())
    assert answer["probabilities"].shape == (len(validation), 2)
    assert (answer["class"] == validation.labels).mean() == pytest.approx(job.result["accuracy"])
    unknown = served(job, ["", "zxqv unheard-of", "great great great", "broken and useless"])
    assert unknown["class"].tolist()[2:] == [1, 0]


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
@pytest.mark.timeout(600)
def test_two_workers_learn_what_one_process_learns_and_resume_on_schedule_to_the_bit(
    tmp_path: Path, task: tuple[str, ...]
) -> None:
    arguments = [
        *task, "--optimizer=sgd", "--optimizer-options=momentum=0.9", "--schedule=warmup-cosine",
        "--checkpoint-every-steps=10", "--checkpoint-keep=20",
    ]  # fmt: skip
    alone = ran(tmp_path / "alone", arguments=arguments)
    last = f"ckpt-{alone.result['steps']}"

    together = ran(tmp_path / "together", strategy="MultiWorkerMirrored", arguments=arguments)
    assert together.result["loss"] == pytest.approx(alone.result["loss"], rel=1e-3)

    with Job(tmp_path / "interrupted", strategy="MultiWorkerMirrored", arguments=arguments) as job:
        job.hold_at(10)
        job.start().wait_for_checkpoint(10)
        job["worker-1"].kill(signal.SIGTERM)
        job.let_go()
        assert set(job.wait().values()) == {42}
        assert set(job.start().wait().values()) == {0}
        job["worker-0"].wait_for("resumed: step")
    assert tensors(job.checkpoints / last) == tensors(together.checkpoints / last)


def test_the_rate_of_the_command_line_holds_when_a_run_is_resumed_with_another(folder: Path) -> None:
    arguments = ["--task=tabular-classification", "--dataset=breast-cancer", "--batch-size=152"]
    before = tensors(ran(folder, arguments=[*arguments, "--epochs=5"]).checkpoints / "ckpt-15")
    # So small a rate changes nothing that float32 could hold.
    slower = [*arguments, "--epochs=8", "--learning-rate=1e-30", "--schedule=cosine"]
    job = ran(folder, arguments=slower)
    after = tensors(job.checkpoints / "ckpt-24")
    assert "resumed: step 15 of 24" in job["worker-0"].log
    weights = [key for key in before if key.startswith("weights/")]
    assert weights
    assert {key: before[key] for key in weights} == {key: after[key] for key in weights}


def test_the_batch_and_the_rate_are_reported(folder: Path) -> None:
    arguments = [
        *TUMOURS[:1], "--per-replica-batch-size=16", "--logical-cpus=2", "--learning-rate=0.001",
        "--epochs=1",
    ]  # fmt: skip
    job = ran(folder, strategy="Mirrored", arguments=arguments)
    assert (
        "batch 32 global, 16 per replica  replicas 2  adam  learning rate 0.001  15 steps: 1 epochs of 456 examples"
    ) in job["worker-0"].log
