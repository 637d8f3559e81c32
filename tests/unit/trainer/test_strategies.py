"""What the strategies decide without TensorFlow: the legs of Keras' fit, and where a TPU is reached."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtj_trainer.config.parsing import parse
from dtj_trainer.errors import UsageError
from dtj_trainer.training.stepping import Course, fit_segments

pytestmark = pytest.mark.unit


def test_the_legs_of_fit_are_the_rest_of_an_epoch_whole_epochs_and_the_rest_of_the_last() -> None:
    assert list(fit_segments(12, 47, 10)) == [(1, 2, 8), (2, 4, 10), (4, 5, 7)]
    assert list(fit_segments(0, 30, 10)) == [(0, 3, 10)]
    assert list(fit_segments(12, 15, 10)) == [(1, 2, 3)]
    assert list(fit_segments(30, 30, 10)) == []


def test_epochs_of_whole_steps_that_are_fewer_than_asked_for_are_said() -> None:
    assert Course(examples=64, epochs=10, batch=64).describe_whole_epochs() is None
    assert Course(examples=65, epochs=10, batch=64).describe_whole_epochs() == (
        "--epochs=10: callbacks and validations count 6 epochs, of 2 whole steps each; the 65 examples are 1.02 steps "
        "of 64: give a batch size that divides them if each epoch has to count"
    )


@pytest.mark.property
@given(step=st.integers(0, 300), more=st.integers(0, 300), per_epoch=st.integers(1, 40))
def test_the_legs_of_fit_lead_to_the_last_step_and_no_epoch_is_counted_twice(
    step: int, more: int, per_epoch: int
) -> None:
    at = step
    for first_epoch, epochs, steps in fit_segments(step, step + more, per_epoch):
        assert first_epoch == at // per_epoch
        assert 0 < steps <= per_epoch
        at += (epochs - first_epoch) * steps
    assert at == step + more


def test_a_tpu_is_this_hosts_unless_runtimes_are_named() -> None:
    assert parse(["--strategy=TPU"], {}).tpu_runtimes == {}
    config = parse(["--strategy=TPU"], {"TPU_NAME": "grpc://a:8470,grpc://[::1]:8471"})
    assert config.tpu_runtimes == {"TPU 0": ("a", 8470), "TPU 1": ("::1", 8471)}
    assert parse([], {"TPU_NAME": "grpc://a:8470"}).tpu_runtimes == {}


@pytest.mark.parametrize("name", ["my-tpu", "grpc://a", "http://a:1", "grpc://a:1,local", "grpc://:1"])
def test_a_tpu_that_cannot_be_addressed_is_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"^--tpu-name=.*: give local, for the chips of this host, or grpc://host:port"
    ):
        parse(["--strategy=TPU", f"--tpu-name={name}"], {})


@pytest.mark.parametrize("strategy", ["TPU", "CentralStorage"])
def test_a_strategy_of_one_process_refuses_more_tasks(strategy: str) -> None:
    cluster = {"worker": ["a:1", "b:1"]}
    environ = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})}
    with pytest.raises(UsageError, match=rf"^strategy {strategy} .* one process, but TF_CONFIG lists 2 tasks"):
        parse([f"--strategy={strategy}"], environ)
