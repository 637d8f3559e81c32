"""Strategy TPU where there is no TPU: which is everywhere that these tests can run.

What a TPU would answer is the one thing that is made up: TensorFlow's functions are fakes in the tests of the order.
"""

import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.cluster import SOON, Job, launched_once, ran


def test_no_tpu_on_this_host_is_one_line_that_says_what_to_ask_for(folder: Path) -> None:
    worker = ran(folder, code=2, strategy="TPU", plain=True)["worker-0"]
    assert worker.last_words.startswith("TPU not found: this host has none of /dev/accel")
    assert "set spec.accelerator with a TPU's profile and topology" in worker.last_words
    assert "Traceback" not in worker.log


def test_a_runtime_that_nobody_listens_at_is_waited_for_no_longer_than_asked(folder: Path) -> None:
    environ = {"TPU_NAME": "grpc://127.0.0.1:9,grpc://127.0.0.2:9"}
    worker = ran(folder, code=75, strategy="TPU", arguments=["--start-timeout=4"], environ=environ)["worker-0"]
    assert re.search(
        r"start gate: 2 of 2 peers missing after \d+ s: TPU 0 at 127.0.0.1:9 \(connection refused\)", worker.last_words
    )


def test_a_chief_meets_the_hosts_of_its_slice_which_serve_until_they_are_asked_to_stop(folder: Path) -> None:
    """CPUs stand in for the chips, so that TensorFlow connects to the hosts and then finds no TPU."""
    with Job(folder, strategy="TPU", roles={"chief": 1, "worker": 2}, plain=True) as job:
        job.start("worker-0", "worker-1")
        for index in range(2):
            job[f"worker-{index}"].wait_for(f"worker {index}: serving the TPU of this host at 127.0.0.1")
        assert job.start("chief-0")["chief-0"].wait() == 2
        hosts = ",".join(f"grpc://{address}" for address in job.cluster["worker"])
        assert f"TPU {hosts}: could not be initialised: TPUs not found in the cluster" in job["chief-0"].last_words
        for index in range(2):
            host = job[f"worker-{index}"]
            assert host.process.poll() is None
            host.kill(signal.SIGTERM)
            assert host.wait(SOON) == 143
            assert "asked to stop, and chief 0 has left" in host.log


def test_a_host_that_never_starts_is_named_and_waited_for_no_longer_than_asked(folder: Path) -> None:
    with Job(folder, strategy="TPU", roles={"chief": 1, "worker": 1}, arguments=["--start-timeout=4"]) as job:
        assert job.start("chief-0")["chief-0"].wait() == 75
        assert f"worker 0 at {job.cluster['worker'][0]} (connection refused)" in job["chief-0"].last_words


def test_a_runtime_that_accepts_and_never_answers_is_waited_for_no_longer_than_asked(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        name = f"grpc://127.0.0.1:{mute.getsockname()[1]}"
        with Job(folder, strategy="TPU", arguments=["--start-timeout=4"], program=launched_once()) as job:
            worker = job.start(environ={"TPU_NAME": name})["worker-0"]
            assert worker.wait(SOON) == 75
    # TensorFlow may hold the interpreter meanwhile: then the stacks are the only words.
    assert f"TPU {name} passed the start gate" in worker.log or "most recent call first" in worker.log


class FakeTensorFlow:
    """Notes what is asked of it, and fails where it is asked to."""

    def __init__(self, failing: str = "", error: Exception | None = None) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._failing, self._error = failing, error
        self.distribute = SimpleNamespace(
            cluster_resolver=SimpleNamespace(TPUClusterResolver=self._step("resolver")),
            TPUStrategy=self._step("strategy"),
        )
        self.config = SimpleNamespace(experimental_connect_to_cluster=self._step("connect"))
        self.tpu = SimpleNamespace(experimental=SimpleNamespace(initialize_tpu_system=self._step("initialise")))

    def _step(self, name: str) -> Callable[[Any], str]:
        def step(argument: Any) -> str:
            self.asked.append((name, argument))
            if name == self._failing and self._error is not None:
                raise self._error
            return f"the {name}"

        return step


@pytest.fixture
def host_with_a_chip(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "accel0").touch()
    return tmp_path


def test_resolver_connection_initialisation_and_strategy_come_in_this_order(host_with_a_chip: Path) -> None:
    from dtj_trainer.distribution import tpu

    fake = FakeTensorFlow()
    assert tpu.make_tpu_strategy("local", library=fake, root=host_with_a_chip) == "the strategy"
    assert fake.asked == [
        ("resolver", "local"),
        ("connect", "the resolver"),
        ("initialise", "the resolver"),
        ("strategy", "the resolver"),
    ]


def test_a_tensorflow_without_tpus_is_one_line_with_the_image_to_take(host_with_a_chip: Path) -> None:
    import tensorflow as tf

    from dtj_trainer.distribution import tpu
    from dtj_trainer.errors import UsageError

    error = tf.errors.NotFoundError(None, None, "No OpKernel was registered\nto support Op 'ConfigureDistributedTPU'")
    fake = FakeTensorFlow("initialise", error)
    with pytest.raises(UsageError, match=r"^TPU local: could not be initialised: No OpKernel .*image for TPUs") as line:
        tpu.make_tpu_strategy("local", library=fake, root=host_with_a_chip)
    assert "\n" not in str(line.value)
    assert fake.asked[-1] == ("initialise", "the resolver")


def test_a_runtime_that_goes_away_while_it_is_initialised_is_a_lost_peer() -> None:
    import tensorflow as tf

    from dtj_trainer.distribution import tpu
    from dtj_trainer.errors import PeerLost

    fake = FakeTensorFlow("initialise", tf.errors.UnavailableError(None, None, "Socket closed"))
    with pytest.raises(PeerLost, match=r"^TPU grpc://h:1: could not be initialised: Socket closed$"):
        tpu.make_tpu_strategy("grpc://h:1", library=fake)
