"""What is looked at before a task with GPUs waits for its peers. Driver, GPUs and TensorFlow are played."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dtj_launch import devices, gpu_checks
from dtj_launch.errors import Unavailable, UsageError
from dtj_launch.gpu_checks import Surroundings, judge
from support.gpus import machine
from support.launched import Launch, Launched

RELEASE = ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"]
"""What TensorFlow 2.20 and 2.21 of PyPI are built for."""
CUDA: Mapping[str, Any] = {"is_cuda": True, "cuda": "12.5.1", "cudnn": "9", "capabilities": RELEASE}
CPU: Mapping[str, Any] = {"is_cuda": False, "cuda": "", "cudnn": "", "capabilities": []}
MULTI, RING = {"DTJ_STRATEGY": "MultiWorkerMirrored"}, {"DTJ_COMMUNICATION": "ring"}


def seen(*gpus: tuple[int, int], version: int = 12080) -> dict[str, Any]:
    """What a driver says that shows these GPUs, by their compute capability."""
    return {"version": version, "gpus": [list(gpu) for gpu in gpus]}


@pytest.fixture(autouse=True)
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "ROOT", str(machine(tmp_path / "root", files=(0, 1))))


def surroundings(
    driver: Mapping[str, Any],
    *,
    build: Mapping[str, Any] | None = CUDA,
    libraries: Mapping[str, str | None] | None = None,
    shared_memory: int = 1 << 30,
) -> Surroundings:
    return Surroundings(build, libraries or {}, driver, shared_memory, "2.21.0")


A100 = (8, 0)


@pytest.mark.parametrize(
    ("found", "environ"),
    [
        (surroundings(seen(A100, A100)), {}),
        (surroundings(seen((8, 6), (8, 9))), {}),
        (surroundings(seen(A100, A100), build=None), {}),
        (surroundings(seen(A100, A100), build={**CUDA, "capabilities": ["8.0"]}), {}),  # another way to write them
        (surroundings(seen((12, 0), (12, 0)), build={**CUDA, "capabilities": ["sm_120"]}), {}),
        (surroundings(seen(A100, A100), libraries={"libnccl.so.2": "gone"}), {}),
        (surroundings(seen(A100, A100), libraries={"libnccl.so.2": "gone"}), {**MULTI, **RING}),
        (surroundings(seen(A100)), {"CUDA_VISIBLE_DEVICES": "1"}),
    ],
)
def test_what_fits_together_is_not_spoken_of(found: Surroundings, environ: dict[str, str]) -> None:
    verdict = judge(found, environ)
    assert (verdict.error, verdict.warnings) == (None, [])


@pytest.mark.parametrize(
    ("found", "environ", "kind", "words"),
    [
        (surroundings({}, build=CPU), {}, UsageError, "TensorFlow 2.21.0 is built without CUDA"),
        (
            surroundings({"missing": "libcuda.so.1: cannot open"}),
            {},
            Unavailable,
            "libcuda.so.1 cannot be loaded (libcu",
        ),
        (surroundings({"error": "CUDA_ERROR_UNKNOWN"}), {}, Unavailable, "the driver ends with CUDA_ERROR_UNKNOWN"),
        (
            surroundings(seen(A100, A100, version=11040)),
            {},
            Unavailable,
            "for CUDA 11.4, and this TensorFlow for 12.5",
        ),
        (
            surroundings(seen(A100, A100), libraries={"libcudart.so.12": None, "libcudnn.so.9": "file too short"}),
            {},
            UsageError,
            "libcudnn.so.9 cannot be loaded (file too short), and TensorFlow would train on the CPU",
        ),
        (
            surroundings(seen(A100, A100), libraries={"libnccl.so.2": "undefined symbol: cudaLaunch"}),
            MULTI,
            UsageError,
            "libnccl.so.2 cannot be loaded (undefined symbol: cudaLaunch), so GPUs cannot add up gradients by NCCL",
        ),
        (surroundings(seen(A100)), {}, Unavailable, "was granted 2, and CUDA sees 1; look at nvidia-smi"),
        (surroundings(seen(A100)), {"NVIDIA_VISIBLE_DEVICES": "MIG-a,MIG-b"}, UsageError, "of which a process uses 1"),
        (surroundings(seen(A100, A100)), {"NVIDIA_VISIBLE_DEVICES": "GPU-a"}, UsageError, "granted 1, and CUDA sees 2"),
        (
            surroundings(seen((5, 2), (5, 2))),
            {},
            UsageError,
            "compute capability 5.2, and TensorFlow 2.21.0 is built",
        ),
        (
            surroundings(seen((12, 0), (12, 0))),
            {},
            UsageError,
            "compute capability 12.0, and TensorFlow 2.21.0 is",
        ),
    ],
)
def test_what_cannot_train_is_one_line_and_is_retried_where_another_node_may_do(
    found: Surroundings, environ: dict[str, str], kind: type[Exception], words: str
) -> None:
    error = judge(found, environ).error
    assert type(error) is kind
    assert words in str(error)
    assert "\n" not in str(error)


def test_a_driver_that_is_mounted_where_the_loader_does_not_look_is_named_with_the_folder() -> None:
    folder = Path(devices.ROOT, *gpu_checks.MOUNTED_DRIVER.split("/"))
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").touch()
    error = judge(surroundings({"missing": "libcuda.so.1: cannot open"}), {}).error
    assert type(error) is UsageError
    assert "add /usr/local/nvidia/lib64 to LD_LIBRARY_PATH, in env or in the image" in str(error)


def test_the_image_of_the_trainer_finds_the_driver_of_gke() -> None:
    dockerfile = Path(__file__).parents[3] / "trainer-image" / "Dockerfile"
    (folders,) = re.findall(r"\bLD_LIBRARY_PATH=(\S+)", dockerfile.read_text(), re.MULTILINE)
    assert gpu_checks.MOUNTED_DRIVER in folders.split(":")


@pytest.mark.parametrize("gpu", [(9, 0), (10, 0)])
def test_gpus_that_are_newer_than_the_build_are_said_to_compile_for_long(gpu: tuple[int, int]) -> None:
    verdict = judge(surroundings(seen(gpu, gpu)), {})
    assert verdict.error is None
    (warning,) = verdict.warnings
    assert "compiles for up to half an hour; keep that with CUDA_CACHE_PATH" in warning


def test_a_driver_that_may_not_compile_what_such_gpus_need_is_said_too() -> None:
    (warning,) = judge(surroundings(seen((9, 0), (9, 0), version=12020)), {}).warnings
    assert warning.endswith(
        "; the driver is for CUDA 12.2, and may refuse what CUDA 12.5 has left to compile "
        "(CUDA_ERROR_UNSUPPORTED_PTX_VERSION): then update it"
    )
    (warning,) = judge(surroundings(seen((9, 0), (9, 0), version=12050)), {}).warnings
    assert "driver" not in warning
    assert judge(surroundings(seen(A100, A100, version=12020)), {}).warnings == []


def test_little_shared_memory_is_said_where_several_gpus_need_it() -> None:
    little = surroundings(seen(A100, A100), shared_memory=64 << 20)
    assert judge(little, {}).warnings[0].startswith("GPU: /dev/shm has 64 MiB, which NCCL may use up;")
    assert judge(little, {"CUDA_VISIBLE_DEVICES": "0"}).warnings == []


def image(folder: Path, **info: object) -> Path:
    """A folder with a TensorFlow that was built so, and with a library that is damaged."""
    (folder / "tensorflow/python/platform").mkdir(parents=True)
    (folder / "tensorflow/__init__.py").write_text("raise SystemExit('imported')\n")
    (folder / "tensorflow/python/platform/build_info.py").write_text(f"build_info = {info!r}\n")
    (folder / "nvidia/cuda_runtime/lib").mkdir(parents=True)
    (folder / "nvidia/cuda_runtime/lib/libcudart.so.12").write_text("cut off")
    return folder


@pytest.mark.parametrize(
    ("info", "words", "retried"),
    [
        ({"is_cuda_build": False}, "is built without CUDA", False),
        (
            {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"},
            "libcuda.so.1 cannot be loaded",
            True,
        ),
    ],
)
def test_a_task_on_a_machine_with_gpus_ends_before_it_starts_if_they_cannot_be_used(
    tmp_path: Path, info: dict[str, object], words: str, retried: bool
) -> None:
    begin = f"from dtj_launch import agent, devices; devices.ROOT = {devices.ROOT!r}; agent.main()"
    path = f"{image(tmp_path / 'image', **info)}:{Path(__file__).parents[3] / 'trainer-image'}"
    program = ("--", "echo", "started")
    launcher = (sys.executable, "-c", begin)
    task = Launched(tmp_path, "task", program, launcher=launcher, PYTHONPATH=path, KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert task.wait() == 2
    assert words in task.output
    assert "started" not in task.output
    assert task.output.count("\n") == 1
    assert ("no restart can help" not in task.last_words) == retried
    elsewhere = Launched(tmp_path, "elsewhere", program, launcher=launcher, PYTHONPATH=path)
    assert elsewhere.wait() == 0
    assert words in elsewhere.err.read_text()
    assert elsewhere.out.read_text() == "started\n"


def test_each_library_is_opened_where_tensorflow_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dtj_launch import gpu_probe

    info = {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"}
    monkeypatch.syspath_prepend(image(tmp_path / "image", **info))
    built = gpu_probe.build()
    assert built is not None
    found = gpu_probe.libraries(built)
    assert "too short" in (found.pop("libcudart.so.12") or "")
    assert list(found) == [
        "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12",
        "libcudnn.so.9", "libnccl.so.2",
    ]  # fmt: skip
    assert gpu_probe.libraries({**built, "cuda": "99.1"}) == {}


def test_a_task_without_gpus_is_asked_nothing(launch: Launch) -> None:
    began = launch("--", "echo", "started", NVIDIA_VISIBLE_DEVICES="all")
    assert began.wait() == 0
    assert began.output == "started\n"
