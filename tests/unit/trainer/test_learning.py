"""The optimizer, its rate and a user's own functions, as the command line says them: without TensorFlow."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest

import dtj_trainer
from dtj_trainer.config import entry_points
from dtj_trainer.config.execution import DATASETS, TASKS
from dtj_trainer.config.parsing import Config, parse
from dtj_trainer.errors import UsageError
from support.bad_arguments import refusal


def configured(*argv: str) -> Config:
    return parse(argv, {})


@pytest.mark.parametrize("task", TASKS)
def test_each_task_has_a_data_set_and_a_rate_for_each_optimizer(task: str) -> None:
    assert configured(f"--task={task}").dataset == TASKS[task].datasets[0]
    for optimizer in ("adam", "sgd"):
        learning = configured(f"--task={task}", f"--optimizer={optimizer}").learning
        assert (learning.optimizer, learning.rate) == (optimizer, TASKS[task].learning_rates[optimizer])


def test_each_data_set_belongs_to_a_task_and_says_where_it_is_from() -> None:
    assert {name for task in TASKS.values() for name in task.datasets} == set(DATASETS)
    files = sorted((Path(dtj_trainer.__file__).parent / "datasets").glob("*.gz"))
    assert len(files) == len(DATASETS)
    for file in files:
        origin = file.with_name(file.name.partition(".")[0]).with_suffix(".md").read_text()
        assert file.name in origin.splitlines()[0]
        assert "licen" in origin
        assert file.stat().st_size < 400_000


def test_what_is_not_given_is_adam_at_a_constant_rate() -> None:
    learning = configured().learning
    assert not learning.asked
    assert (learning.optimizer, learning.schedule) == ("adam", "constant")
    assert configured("--schedule=cosine").learning.asked


def test_an_optimizer_that_a_task_has_no_rate_for_takes_keras_and_options_are_numbers_and_truths() -> None:
    learning = configured(
        "--optimizer=adamw", "--optimizer-options=weight_decay=0.01, ema_overwrite_frequency=5,use_ema=true"
    ).learning
    assert (learning.asked, learning.optimizer, learning.rate) == (True, "adamw", None)
    assert learning.settings == {"weight_decay": 0.01, "ema_overwrite_frequency": 5, "use_ema": True}
    assert learning.settings["use_ema"] is True


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("--optimizer=lambda", ": no such optimizer; this trainer knows adam, sgd"),
        ("--optimizer-options=decay", ": decay: give a finite number, true or false"),
        ("--optimizer-options=a=1,,b=2", ": give NAME=NUMBER, or NAME=true or NAME=fal"),
        ("--optimizer-options=a=1,a=2", ": give NAME=NUMBER, or NAME=true or NAME=fals"),
        ("--optimizer-options=a=one", ": a: give a finite number, true or false"),
        ("--optimizer-options=epsilon=1e400", ": epsilon: give a finite number, true or false"),
        ("--optimizer-options=clipnorm=nan", ": clipnorm: give a finite number, true or false"),
        ("--schedule=linear", ": no such schedule; this trainer knows constant, cosine,"),
        ("--task=text-classification --dataset=digits", ": no data set of task text-classif"),
        ("--model=net", ": give package.module:function"),
        ("--model=net:", ": give package.module:function"),
        ("--data=my-data:load", ": give package.module:function"),
        ("--model=a:b", ": nothing to learn from; give --data, --data-dir, or a"),
        ("--model=a:b --dataset=letters", ": no data set; this trainer knows digits, reviews,"),
        ("--model=a:b --task=tabular-regression", "--model=a:b and --task=tabular-regression: give one of"),
        ("--data=a:b --dataset=digits", "--data=a:b and --dataset=digits: give one of the two"),
        ("--loss=huber", ": a task has its own loss; give --model, or leave it out"),
        ("--no-shuffle", ": only --data comes in an order of its own; leave it out"),
    ],
)
def test_what_cannot_be_is_one_line(given: str, printed: str) -> None:
    assert refusal(given).startswith(printed)


def test_a_model_of_ones_own_learns_from_own_data_or_from_what_ships() -> None:
    own = configured("--model=net.cnn:build", "--data=net.data:images", "--no-shuffle", "--loss=huber").user_code
    assert (str(own.model), str(own.data)) == ("--model=net.cnn:build", "--data=net.data:images")
    assert (own.shuffle, own.loss) == (False, "huber")
    config = configured("--model=net.cnn:build", "--dataset=diabetes")
    assert (config.dataset, config.learning.rate) == ("diabetes", 0.001)


def test_a_module_is_looked_for_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_net"
    package.mkdir()
    for file in ("__init__.py", "cnn.py"):
        (package / file).write_text("raise AssertionError('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    entry_points.check(configured("--model=some_net.cnn:build", "--dataset=diabetes").user_code)
    with pytest.raises(UsageError, match=r"there is no module some_net\.rnn; put it into the working directory \("):
        entry_points.check(configured("--model=some_net.rnn:build", "--dataset=diabetes").user_code)
    assert sys.path == [str(tmp_path), "/nowhere"], "the working directory is there once"
    monkeypatch.setattr("sys.path", ["", "/nowhere"])
    entry_points.check(configured("--model=some_net.cnn:build", "--dataset=diabetes").user_code)
    assert sys.path == ["", "/nowhere"]


def test_a_module_that_an_editable_installation_finds_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_net").mkdir()
    for file in ("__init__.py", "cnn.py"):
        (tmp_path / "some_net" / file).write_text("raise AssertionError('imported')\n")

    class Editable:
        """As setuptools makes it: it alone knows the folder, and gives the package to `import`."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
            return PathFinder.find_spec(name, [str(tmp_path)]) if name == "some_net" else None

    monkeypatch.setattr("sys.meta_path", [*sys.meta_path, Editable])
    entry_points.check(configured("--model=some_net.cnn:build", "--dataset=diabetes").user_code)
    with pytest.raises(UsageError, match=r"there is no module some_net\.rnn; "):
        entry_points.check(configured("--model=some_net.rnn:build", "--dataset=diabetes").user_code)
