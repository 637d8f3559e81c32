"""How strategies are told to send gradients, with machines that look as if they had GPUs: TensorFlow here has none."""

from pathlib import Path

import pytest

from support.gpus import machine
from trainer.cluster import Job, Replica, ran

LOOKS = (
    "import sys; from dtj_launch import devices; devices.ROOT = sys.argv.pop(1); "
    "from dtj_trainer.__main__ import main; main()"
)
"""The trainer on a machine whose root is the first argument."""
SCRIPT = """
    import sys

    import tensorflow as tf

    kinds = tf.distribute.experimental.CommunicationImplementation
    make = tf.distribute.experimental.CommunicationOptions
    given = {"none": {}, "ring": {"communication_options": make(implementation=kinds.RING)}}
    strategy = tf.distribute.MultiWorkerMirroredStrategy(**given[sys.argv[1]])
    options = strategy.extended._communication_options
    summed = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
    print("sends by", options.implementation.name, options.bytes_per_pack, float(summed))
"""


FOLDS = """
    import keras
    import numpy as np
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    x = np.ones([16, 4], "float32")
    for fold in range(3):
        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            model = keras.Sequential([keras.Input([4]), keras.layers.Dense(3 + fold), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        model.fit(x, x[:, :1], batch_size=8, verbose=0)
"""


def test_a_script_may_make_a_strategy_for_each_fold_of_a_cross_validation(folder: Path) -> None:
    ran(folder, strategy="Mirrored", script=FOLDS)


def started(job: Job, *, gpus: tuple[int, int]) -> list[Replica]:
    """The two tasks, each on a machine that looks as if it had so many GPUs."""
    tasks = []
    for index, count in enumerate(gpus):
        root = machine(job.folder / f"machine-{index}", files=range(count), name=f"{index}")
        job.program = ("-c", LOOKS, str(root))
        job.start(f"worker-{index}")
        tasks.append(job[f"worker-{index}"])
    return tasks


@pytest.mark.parametrize(
    ("given", "sends"),
    [
        ("none", "NCCL 0 2.0"),
        ("ring", "RING 0 2.0"),
    ],
)
def test_a_strategy_that_a_script_makes_sends_as_the_tasks_have_decided_unless_it_says_how(
    folder: Path, given: str, sends: str
) -> None:
    arguments = ["--", given]
    with Job(folder, strategy="MultiWorkerMirrored", script=SCRIPT, arguments=arguments, plain=True) as job:
        for task in started(job, gpus=(1, 1)):
            assert task.wait() == 0
            assert f"sends by {sends}" in task.log


@pytest.mark.parametrize(
    ("gpus", "option", "words"),
    [
        (
            (1, 0),
            "auto",
            "need as many GPUs each, but have 1: worker 0; none: worker 1; give chief and workers the same",
        ),
        ((0, 0), "nccl", "--communication=nccl (spec.communication: NCCL): no GPU was found"),
    ],
)
def test_tasks_whose_devices_do_not_fit_together_end_before_tensorflow_connects(
    folder: Path, gpus: tuple[int, int], option: str, words: str
) -> None:
    with Job(folder, strategy="MultiWorkerMirrored", arguments=[f"--communication={option}"], plain=True) as job:
        for task in started(job, gpus=gpus):
            assert task.wait() == 2
            assert words in task.last_words
            assert not task.restart_may_help


def test_the_strategy_of_the_trainers_own_loop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    from dtj_trainer.config.parsing import parse
    from dtj_trainer.distribution import strategies

    made = {}
    monkeypatch.setattr(strategies, "_follow_leader", lambda _: None)
    monkeypatch.setattr(strategies, "configure_coordination", lambda *_, **__: None)
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda **options: made.update(options))
    cluster = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
    strategies.make_strategy(parse(["--strategy=MultiWorkerMirrored", "--communication=nccl"], {"TF_CONFIG": cluster}))
    assert made["communication_options"].implementation.name == "NCCL"


def test_other_options_of_a_script_stay() -> None:
    import tensorflow as tf

    from dtj_trainer.user_code.communication import decided

    packs = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=1 << 20, timeout_seconds=7.0)
    chosen = decided(packs, "nccl")
    assert (chosen.implementation.name, chosen.bytes_per_pack, chosen.timeout_seconds) == ("NCCL", 1 << 20, 7.0)


@pytest.mark.parametrize(("option", "given"), [("auto", "nothing"), ("ring", "HierarchicalCopyAllReduce")])
def test_several_gpus_of_one_task_do_without_nccl_if_they_are_told_to(
    monkeypatch: pytest.MonkeyPatch, option: str, given: str
) -> None:
    import tensorflow as tf

    from dtj_trainer.config.parsing import parse
    from dtj_trainer.distribution import strategies
    from dtj_trainer.user_code import communication

    class Mirrored:
        _collective_key_base = 0

        def __init__(self, devices: object = None, cross_device_ops: object = None) -> None:
            made.append("nothing" if cross_device_ops is None else type(cross_device_ops).__name__)

    made: list[str] = []
    found = tf.config.list_physical_devices
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: found(kind) or ["one", "two"])
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", lambda *_: None)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", Mirrored)
    config = parse(["--strategy=Mirrored", f"--communication={option}"], {})
    strategies.make_strategy(config)
    communication.give(config)
    tf.distribute.MirroredStrategy()  # of a script
    assert made == [given, given]
