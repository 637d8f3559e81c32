"""What the strategies decide without TensorFlow: how many epochs steps are, and where a TPU is reached."""

import pytest

from dtj_trainer.config.parsing import parse
from dtj_trainer.training.stepping import Course
from support.bad_arguments import refusal


def test_epochs_of_whole_steps_that_are_fewer_than_asked_for_are_said() -> None:
    assert Course(examples=64, epochs=10, batch=64).describe_whole_epochs() is None
    assert Course(examples=65, epochs=10, batch=64).describe_whole_epochs() == (
        "--epochs=10: validations count 6 epochs, of 2 whole steps each; the 65 examples are 1.02 steps of 64: "
        "give a batch size that divides them if each epoch has to count"
    )


def test_a_tpu_is_this_hosts_unless_runtimes_are_named() -> None:
    assert parse(["--strategy=TPU"], {}).tpu_runtimes == {}
    config = parse(["--strategy=TPU"], {"TPU_NAME": "grpc://a:8470,grpc://[::1]:8471"})
    assert config.tpu_runtimes == {"TPU 0": ("a", 8470), "TPU 1": ("::1", 8471)}
    assert parse([], {"TPU_NAME": "grpc://a:8470"}).tpu_runtimes == {}


@pytest.mark.parametrize("name", ["my-tpu", "grpc://a", "http://a:1", "grpc://a:1,local", "grpc://:1"])
def test_a_tpu_that_cannot_be_addressed_is_refused(name: str) -> None:
    printed = ": give local, for the chips of this host, or grpc://host:port"
    assert refusal(f"--strategy=TPU TPU_NAME={name}").startswith(printed)
