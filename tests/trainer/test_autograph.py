"""AutoGraph is for what the user wrote, where Python's `if` may depend on a tensor; and nothing before a fork runs."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainer.cluster import SOURCE, inherited


def test_a_loss_of_the_users_may_decide_by_what_it_sees() -> None:
    import keras
    import tensorflow as tf

    from dtj_trainer.config.entry_points import Name
    from dtj_trainer.training.model import ModelFactory

    def loss(labels: Any, outputs: Any) -> Any:
        errors = tf.abs(outputs - labels)
        if tf.reduce_max(errors) > 1:
            errors = tf.ones_like(errors)
        return errors

    def build() -> Any:
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile(optimizer="sgd", loss=loss)
        return model

    examples = tf.data.Dataset.from_tensors((tf.zeros((2, 1)), tf.zeros((2, 1))))
    data: Any = SimpleNamespace(name="points", input_spec=examples.element_spec[0], validation=lambda batch: examples)
    factory = ModelFactory(Name(flag="--model", module="mine", function="model"), build, data, loss=None)
    compute_metrics = tf.function(
        lambda outputs: factory.compute_metrics(outputs, tf.constant([0.0]))["loss"], autograph=False
    )
    assert [compute_metrics(tf.constant([[output]])).numpy() for output in (0.5, 3.0)] == [[0.5], [1.0]]


def test_what_is_rewritten_for_graphs_stays_as_it_is_for_the_debugger() -> None:
    import tensorflow as tf

    from dtj_trainer.autograph import rewritten

    seen = []

    def larger(values: Any) -> Any:
        seen.append(sys._getframe().f_code)
        if tf.reduce_sum(values) > 1:
            return values
        return -values

    function = rewritten(larger)
    assert tf.function(function, autograph=False)(tf.constant([2.0])).numpy() == [2.0]
    assert function(tf.constant([-2.0])).numpy() == [2.0]
    assert [code is larger.__code__ for code in seen] == [False, True]


PRELOADED = """
import sys
import dtj_trainer.preload
from tensorflow.python.eager import context
print(context.context()._context_handle is None, "dtj_trainer.tasks.shipped" in sys.modules)
"""


def test_what_the_launcher_imports_before_it_forks_has_the_task_and_starts_nothing() -> None:
    environ = {**inherited(), "PYTHONPATH": str(SOURCE)}
    printed = subprocess.run([sys.executable, "-c", PRELOADED], env=environ, check=True, capture_output=True, text=True)
    assert printed.stdout.split() == ["True", "True"]


CONVERTED = """
import sys
import tensorflow as tf
from dtj_trainer.process.ending import leave
def larger(values):
    return values if tf.reduce_sum(values) > 1 else -values
assert tf.function(larger)(tf.constant([-2.0])).numpy() == [2.0]
assert any(name.startswith("__autograph_generated_file") for name in sys.modules)
leave(42)
"""


def test_the_modules_that_it_writes_for_temporary_use_are_gone_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "converted.py").write_text(CONVERTED)
    (tmp_path / "temporary").mkdir()
    environ = {**inherited(), "TMPDIR": str(tmp_path / "temporary"), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run([sys.executable, tmp_path / "converted.py"], cwd=SOURCE, env=environ, check=False)
    assert done.returncode == 42
    assert [path for path in (tmp_path / "temporary").rglob("*") if path.is_file()] == []
