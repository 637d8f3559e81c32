"""Where models of every shape may be cut, and what is reported where they may not."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from dtj_trainer.config.cluster import Task
from dtj_trainer.config.pipeline_layout import Layout
from dtj_trainer.errors import UsageError


def layout(stages: int, *first_layers: str) -> Layout:
    return Layout(stages=stages, micro_batches=1, first_layers=first_layers)


def chain(*units: int) -> Any:
    """Dense layers `a`, `b`, … of this many units on 10 inputs."""
    from keras import Sequential, layers

    named = [layers.Dense(count, name="abcdefgh"[place]) for place, count in enumerate(units)]
    return Sequential([layers.Input((10,)), *named])


def cut(model: Any, wanted: Layout) -> list[str]:
    """The description of the stages."""
    from dtj_trainer.pipeline_parallel import graph_cut

    return [str(part) for part in graph_cut.cut(model, wanted)]


def links(model: Any) -> list[str]:
    from dtj_trainer.pipeline_parallel import graph_cut

    return [link.name for link in graph_cut.segments(model)]


def refusal(model: Any, wanted: Layout) -> str:
    with pytest.raises(UsageError) as refused:
        cut(model, wanted)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_chain_is_cut_so_that_the_stage_with_most_parameters_has_as_few_as_can_be() -> None:
    assert cut(chain(100, 10, 10, 100, 10), layout(2)) == ["a..c", "d..e"]
    assert cut(chain(100, 10, 10, 100, 10), layout(3)) == ["a..b", "c..d", "e"]
    assert cut(chain(1, 1), layout(1)) == ["a..b"]


def test_a_chain_is_cut_where_the_user_says() -> None:
    assert cut(chain(1, 1, 1, 1), layout(3, "b", "d")) == ["a", "b..c", "d"]


def test_every_layer_is_in_one_stage_and_the_stages_make_the_model() -> None:
    import numpy as np

    from dtj_trainer.pipeline_parallel import graph_cut

    model = chain(7, 6, 5, 4)
    parts = graph_cut.cut(model, layout(3))
    assert sum(part.parameters for part in parts) == model.count_params()
    tensor = inputs = np.random.RandomState(0).rand(3, 10).astype("float32")
    for part in parts:
        tensor = part.model()(tensor)
    assert np.array_equal(tensor, model(inputs))


def test_a_model_with_branches_is_cut_between_them() -> None:
    from keras import Model, layers

    inputs = layers.Input((4,))
    tensor = layers.Dense(4, name="first")(inputs)
    for place in range(2):
        branch = layers.Dense(4, name=f"branch_{place}")(tensor)
        tensor = layers.Add(name=f"join_{place}")([layers.Dense(4, name=f"other_{place}")(branch), tensor])
    model = Model(inputs, layers.Dense(1, name="last")(tensor))
    assert links(model) == ["first", "branch_0", "branch_1", "last"]
    assert cut(model, layout(2, "branch_1")) == ["first..branch_0", "branch_1..last"]
    assert refusal(model, layout(2, "other_0")) == (
        "--stages=other_0: the model cannot be cut before 'other_0'; it can before branch_0, branch_1, last"
    )


def test_a_mask_is_not_lost_at_a_cut() -> None:
    from keras import Sequential, layers

    def text(mask: bool) -> Any:
        return Sequential(
            [
                layers.Input((6,), dtype="int32"),
                layers.Embedding(20, 4, mask_zero=mask, name="words"),
                layers.Dropout(0.1, name="drop"),
                layers.LSTM(4, name="reader"),
                layers.Dense(1, name="judge"),
            ]
        )

    assert links(text(mask=False)) == ["words", "drop", "reader", "judge"]
    assert links(text(mask=True)) == ["words", "judge"]


def test_whole_numbers_have_no_gradient_that_could_come_back_over_a_cut() -> None:
    from keras import Sequential, layers

    model = Sequential(
        [
            layers.Input((6,), dtype="int32"),
            layers.Reshape((6,), name="same"),
            layers.Embedding(20, 4, name="words"),
            layers.Flatten(name="flat"),
        ]
    )
    assert links(model) == ["same", "flat"]


def test_two_uses_of_one_weight_stay_together() -> None:
    from keras import Model, layers

    shared = layers.Dense(4, name="shared")
    inputs = layers.Input((4,))
    tensor = shared(layers.Dense(4, name="between")(shared(layers.Dense(4, name="first")(inputs))))
    assert links(Model(inputs, layers.Dense(1, name="last")(tensor))) == ["first", "shared", "last"]


def test_too_many_stages_are_refused_with_what_there_is_to_cut() -> None:
    assert refusal(chain(1, 1), layout(3)) == (
        "strategy Pipeline: 3 stages, but the model can be cut into 2 at most (a, b); use fewer workers"
    )


def test_stages_that_are_named_twice_or_backwards_are_refused() -> None:
    assert refusal(chain(1, 1, 1), layout(3, "b", "b")).startswith("--stages=b,b: b begins one stage, not two")
    assert refusal(chain(1, 1, 1), layout(3, "c", "b")) == "--stages=c,b: not in the model's order; give b,c"
    assert refusal(chain(1, 1, 1), layout(2, "a")).startswith("--stages=a: the model cannot be cut before 'a'")


def test_models_that_are_no_chain_from_one_input_to_one_output_are_refused() -> None:
    from keras import Model, Sequential, layers

    class Own(Model):
        """Its graph is known to nobody."""

    assert "Own and not a graph of layers of Keras 3" in refusal(Own(), layout(2))
    assert "a keras Sequential and not a graph" in refusal(Sequential([layers.Dense(1), layers.Dense(1)]), layout(2))
    one, other = layers.Input((4,)), layers.Input((4,))
    both = layers.Add()([one, other])
    assert refusal(Model([one, other], both), layout(2)) == (
        "strategy Pipeline: the model has 2 inputs; only a model with one can be cut"
    )
    assert "2 outputs" in refusal(Model(one, [layers.Dense(1)(one), layers.Dense(1)(one)]), layout(2))


def test_the_leader_keeps_the_whole_model_on_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow.python.eager import context

    from dtj_trainer import __main__ as program
    from dtj_trainer.pipeline_parallel import leader

    found: dict[str, str] = {}

    def note(what: str) -> None:
        found[what] = context.context().device_name

    for owner, name in ((program, "start_gate"), (program.environment, "configure"), (leader, "connect")):
        monkeypatch.setattr(owner, name, Mock())
    monkeypatch.setattr(program, "_connecting", lambda _: nullcontext())
    monkeypatch.setattr(program, "_prepared", lambda _: nullcontext(note("the first look at the model")))
    monkeypatch.setattr(leader, "train", lambda _: note("training, checkpoints, evaluation and export"))
    cluster = SimpleNamespace(task=Task("chief", 0), leads=True)
    program._pipe(Mock(config=SimpleNamespace(cluster=cluster)))
    assert len(found) == 2
    assert set(found.values()) == {"/job:chief/replica:0/task:0/device:CPU:0"}


def test_each_stage_gets_an_optimizer_as_the_model_was_compiled_with() -> None:
    from keras.optimizers import SGD
    from keras.optimizers.schedules import CosineDecay

    from dtj_trainer.pipeline_parallel.stages import copies_of

    given = SGD(CosineDecay(0.5, 10), momentum=0.25, clipnorm=2.0)
    one, other = copies_of(given)(), copies_of(given)()
    assert one is not other
    assert one.get_config() == other.get_config() == given.get_config()
    with pytest.raises(UsageError, match=r"compiled with global_clipnorm=1, but no worker has the gradients of all"):
        copies_of(SGD(0.1, global_clipnorm=1.0))
