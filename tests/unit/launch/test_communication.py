"""Which GPUs a task announces at the start gate, and how tasks send gradients by what all have announced."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dtj_launch import communication, devices
from dtj_launch.communication import CommunicationError, decide, why
from dtj_launch.devices import Devices
from support.gpus import machine
from support.launched import Launch, Launched, cluster_of


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files of the machine are."""
    monkeypatch.setattr(devices, "ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.mark.parametrize(
    ("files", "environ", "granted", "visible"),
    [
        ((), {}, 0, 0),
        ((), {"NVIDIA_VISIBLE_DEVICES": "all"}, 0, 0),  # of NVIDIA's images on any node
        ((), {"NVIDIA_VISIBLE_DEVICES": "0,1"}, 0, 0),
        ((0, 1), {}, 2, 2),
        ((0, 1), {"NVIDIA_VISIBLE_DEVICES": "all"}, 2, 2),
        ((0, 1), {"NVIDIA_VISIBLE_DEVICES": "void"}, 2, 2),  # set where CDI mounts the devices
        ((3, 5), {"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, 2, 2),
        ((0, 1, 2, 3), {"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, 1, 1),  # a privileged container has all device files
        ((0,), {"NVIDIA_VISIBLE_DEVICES": "MIG-a,MIG-b"}, 2, 2),
        ((0, 1), {"CUDA_VISIBLE_DEVICES": "1"}, 2, 1),
        ((0, 1), {"CUDA_VISIBLE_DEVICES": "-1"}, 2, 0),
        ((0, 1), {"CUDA_VISIBLE_DEVICES": ""}, 2, 0),
        ((0, 1), {"CUDA_VISIBLE_DEVICES": "0,7,1"}, 2, 1),
        ((0, 1), {"CUDA_VISIBLE_DEVICES": "GPU-x, GPU-y"}, 2, 2),
    ],
)
def test_gpus_are_those_that_the_container_was_given_and_cuda_may_use(
    root: Path, files: tuple[int, ...], environ: dict[str, str], granted: int, visible: int
) -> None:
    machine(root, files=files)
    assert (devices.granted(environ), devices.visible(environ)) == (granted, visible)


def test_a_machine_without_device_files_has_no_gpu() -> None:
    assert devices.found({}, "auto") == Devices(communication="auto")


def test_what_is_announced_is_one_word_that_its_reader_takes_apart_again(root: Path) -> None:
    machine(root, files=(2, 3), driver=(0, 1, 2, 3))
    mine = devices.found({"NCCL_VERSION": "2.27.5-1 x"}, "ring")
    assert mine.ids == ("a0000002", "a0000003")
    assert devices.found({"CUDA_VISIBLE_DEVICES": "1"}, "").ids == ("a0000003",)
    assert str(mine) == "gpus=2,ids=a0000002/a0000003,nccl=2.27.5-1x,communication=ring"
    assert devices.parse(str(mine)) == mine
    assert devices.parse("gpus=many") is devices.parse("") is None


ONE, TWO = Devices(1, tensorflow="2.21.0", nccl="2.27.5"), Devices(2, tensorflow="2.21.0", nccl="2.27.5")
NONE, RING, NCCL = Devices(), Devices(communication="ring"), Devices(communication="nccl")


@pytest.mark.parametrize(
    ("first", "second", "way"),
    [
        (ONE, ONE, "nccl"),
        (TWO, TWO, "nccl"),
        (NONE, NONE, "ring"),
        (Devices(1, communication="ring"), Devices(1, communication="ring"), "ring"),
        (Devices(1, communication="nccl"), Devices(1, communication="nccl"), "nccl"),
        (RING, RING, "ring"),
        (Devices(1, ids=("a",)), Devices(1, ids=("b",)), "nccl"),
        (Devices(1, ids=("a",)), Devices(1, ids=("a",)), "ring"),
        (Devices(1, nccl="2.27.5"), Devices(1), "nccl"),
    ],
)
def test_nccl_is_taken_where_all_have_gpus_of_their_own_and_ring_where_none_has(
    first: Devices, second: Devices, way: str
) -> None:
    assert decide({"worker 0": first, "worker 1": second}) == way
    assert decide({"worker 1": second, "worker 0": first}) == way


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (NONE, "need as many GPUs each, but have 1: worker 0; none: worker 1; give chief and workers the same"),
        (TWO, "need as many GPUs each, but have 1: worker 0; 2: worker 1; give"),
        (
            Devices(1, tensorflow="2.20.0"),
            "one version of TensorFlow, but have 2.21.0: worker 0; 2.20.0: worker 1; use",
        ),
        (Devices(1, nccl="2.25.1"), "one version of NCCL, but have 2.27.5: worker 0; 2.25.1: worker 1; use one image"),
        (Devices(1, communication="ring"), "--communication: auto: worker 0; ring: worker 1; give all tasks the same"),
    ],
)
def test_tasks_that_do_not_fit_together_are_refused_with_who_has_what(second: Devices, words: str) -> None:
    with pytest.raises(CommunicationError) as refused:
        decide({"worker 0": ONE, "worker 1": second})
    assert words in str(refused.value)


def test_of_many_tasks_some_are_named() -> None:
    many = {f"worker {index}": ONE for index in range(20)}
    with pytest.raises(CommunicationError, match=r"worker 0, .* and 12 more; none: worker 20; give"):
        decide({**many, "worker 20": NONE})


@pytest.mark.parametrize(
    ("task", "words"),
    [(NCCL, "no GPU was found"), (Devices(1, ids=("a",), communication="nccl"), "worker 0 and worker 1 share a GPU")],
)
def test_nccl_is_refused_where_it_cannot_be(task: Devices, words: str) -> None:
    with pytest.raises(CommunicationError, match=words):
        decide({"worker 0": task, "worker 1": task})


def test_the_choice_is_said_where_there_is_one() -> None:
    assert why("ring", {"worker 0": NONE}) == ""
    assert why("nccl", {"worker 0": TWO, "worker 1": TWO}).startswith("communication: NCCL between 4 GPUs;")
    shared = Devices(1, ids=("a",))
    assert "worker 0 and worker 1 share a GPU" in why("ring", {"worker 0": shared, "worker 1": shared})


@pytest.mark.parametrize(
    ("gpus", "code", "words"),
    [
        ((2, 2), 0, "communication: NCCL between 4 GPUs"),
        ((0, 0), 0, "told ring"),
        ((2, 0), 2, "start gate: tasks that train together need as many GPUs each, but have 2: worker 0; none: worker"),
    ],
)
def test_launchers_tell_programs_of_any_image_what_their_tasks_have_come_to(
    tmp_path: Path, gpus: tuple[int, int], code: int, words: str
) -> None:
    tasks = []
    for index, (count, tf_config) in enumerate(zip(gpus, cluster_of(2), strict=True)):
        root = machine(tmp_path / f"machine-{index}", files=range(count), name=f"{index}")
        begin = (
            f"from dtj_launch import agent, devices, gpu_checks; devices.ROOT = {str(root)!r}; "
            "gpu_checks.check = lambda *_: None; agent.main()"
        )
        program = ("--start-timeout=30", "--", "sh", "-c", "echo told $DTJ_COMMUNICATION")
        launcher = (sys.executable, "-c", begin)
        tasks.append(Launched(tmp_path, f"worker-{index}", program, launcher=launcher, TF_CONFIG=tf_config))
    assert [task.wait() for task in tasks] == [code, code]
    for task in tasks:
        assert words in task.output
        assert ("no restart can help" in task.last_words) == bool(code)
        assert ("takes NCCL only if it is asked for" in task.output) == (gpus == (2, 2))
        assert ("told nccl" in task.output) == (gpus == (2, 2))


def test_a_way_that_does_not_exist_is_one_line(launch: Launch) -> None:
    refused = launch("--", "true", DTJ_COMMUNICATION="fast")
    assert refused.wait() == 2
    assert "DTJ_COMMUNICATION=fast: give one of auto, nccl, ring" in refused.output
    assert communication.WAYS == ("auto", "nccl", "ring")
