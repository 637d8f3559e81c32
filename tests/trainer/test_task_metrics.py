"""`--metrics`: metrics of Keras for the tasks that ship, judged by Keras itself on what the exported model answers."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import PATH, Job
from trainer.outcome import points

pytestmark = pytest.mark.trainer

ONE, TWO = {"worker": 1}, {"worker": 2}


def answered(job: Job, dataset: str) -> tuple[Any, Mapping[str, Any]]:
    """The labels of the held-out examples, and what the exported model answers."""
    import tensorflow as tf

    examples = importlib.import_module(f"dtj_trainer.datasets.{dataset}").load().validation
    (path,) = (job.folder / "export").iterdir()
    model = tf.saved_model.load(str(path))
    serve = model.signatures["serving_default"]
    (name,) = serve.structured_input_signature[1]
    return examples.labels, {name: one.numpy() for name, one in serve(**{name: tf.constant(examples.inputs)}).items()}


def by_keras(name: str, labels: Any, answers: Mapping[str, Any]) -> float:
    import keras

    if "value" in answers:
        expected, found, options = labels.reshape(-1, 1), answers["value"].reshape(-1, 1), {}
    elif answers["probabilities"].shape[1] == 2:
        expected, found = labels.reshape(-1, 1), answers["probabilities"][:, 1:]
        options = {"threshold": 0.5} if name == "F1Score" else {}
    else:
        expected, found = keras.utils.to_categorical(labels), answers["probabilities"]
        options = {"average": "macro"} if name == "F1Score" else {}
    metric = getattr(keras.metrics, name)(**options)
    metric.update_state(expected.astype("float32"), found)
    (value,) = keras.ops.convert_to_numpy(metric.result()).reshape(-1)
    return float(value)


@pytest.mark.parametrize(
    ("strategy", "roles", "task", "dataset", "names"),
    [
        (
            *("MultiWorkerMirrored", TWO, "tabular-classification", "breast-cancer"),
            {"AUC": "auc", "F1Score": "f1_score", "FalsePositives": "false_positives"},
        ),
        (
            *("OneDevice", ONE, "image-classification", "digits"),
            {"AUC": "auc", "F1Score": "f1_score", "Recall": "recall"},
        ),
        (
            *("Mirrored", ONE, "tabular-regression", "diabetes"),
            {"R2Score": "r2_score", "RootMeanSquaredError": "root_mean_squared_error"},
        ),
    ],
)
def test_metrics_of_a_task_are_those_of_keras(
    folder: Path, strategy: str, roles: Mapping[str, int], task: str, dataset: str, names: Mapping[str, str]
) -> None:
    arguments = [
        f"--task={task}", f"--dataset={dataset}", f"--metrics={','.join(names)}", "--epochs=2",
        "--validate-every=epoch",
        *(["--logical-cpus=2", "--loop=fit"] if strategy == "Mirrored" else []),
    ]  # fmt: skip
    with Job(folder, strategy=strategy, roles=roles, arguments=arguments) as job:
        assert set(job.start(environ={"PYTHONPATH": PATH}).wait().values()) == {0}
    labels, answers = answered(job, dataset.replace("-", "_"))
    for name, shown in names.items():
        value = by_keras(name, labels, answers)
        assert job.result[shown] == pytest.approx(value, rel=1e-4, abs=1e-5), name
        curve = points(folder / "logs" / "validation")[shown]
        assert list(curve.values())[-1] == pytest.approx(value, rel=1e-4, abs=1e-5), name
        assert shown in points(folder / "logs" / "train")
