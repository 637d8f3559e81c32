"""Hints for words that no machine without GPUs says by itself: each as a public report quotes it."""

from __future__ import annotations

import re

import pytest

from dtj.core.hints import HINTS, hint

ADVICE = {known.name: known.advice for known in HINTS}

REPORTED = [
    ("exec-format", 'standard_init_linux.go:211: exec user process caused "exec format error"', 1),
    ("not-started", 'exec: "python train.py": executable file not found in $PATH: unknown', 128),
    ("not-started", 'exec: "/app/train.sh": stat /app/train.sh: no such file or directory: unknown', 128),
    ("not-started-by-mode", 'exec: "/app/train.sh": permission denied: unknown', 128),
    ("exec-format", "bash: ./train: cannot execute binary file: Exec format error", 126),
    ("shared-memory-full", "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device", 1),
    (
        "shared-memory-full",
        "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space "
        "left on device (28)",
        1,
    ),
    ("shared-memory-full", "OSError: [Errno 28] No space left on device: '/dev/shm/sem.mp-x'", 1),
    ("disk-full", "OSError: [Errno 28] No space left on device: '/checkpoint/ckpt-7'", 1),
    ("bus-error", "APPLICATION TERMINATED WITH THE EXIT STRING: Bus error (signal 7)", 1),
    ("bus-error-by-code", "", 135),
    ("cpu-too-old-by-code", "", 132),
    (
        "nccl-system-error",
        "INTERNAL:  NCCL: unhandled system error. Set NCCL_DEBUG=WARN for detail.\n [[node Adam/NcclAllReduce]]",
        1,
    ),
    ("nccl-cuda-error", "NCCL: unhandled cuda error. Set NCCL_DEBUG=WARN for detail.", 1),
    ("nccl-duplicate-gpu", "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 3d000", 1),
    (
        "cache-in-use",
        "AlreadyExistsError: There appears to be a concurrent caching iterator running - cache lockfile already exists "
        "('cache/mnist_0.lockfile'). If you are sure no other running TF computations are using this cache prefix, "
        "delete the lockfile and re-initialize the iterator.",
        1,
    ),
    ("unknown-user", "KeyError: 'getpwuid(): uid not found: 12345'", 1),
    ("unknown-user", "OSError: No username set in the environment", 1),
    ("driver-too-old", "Status: CUDA driver version is insufficient for CUDA runtime version", 1),
    ("driver-too-old", "kernel version 418.67.0 does not match DSO version 410.72.0 -- cannot find working devices", 1),
    ("gpu-memory-taken", "failed to allocate 7.93G from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory", 1),
    ("device-out-of-memory", "ResourceExhaustedError: OOM when allocating tensor\nCUDA_ERROR_OUT_OF_MEMORY", 1),
    ("dnn-library", "FailedPreconditionError: DNN library initialization failed. Look at the errors above", 1),
    ("dnn-library", "cuda_dnn.cc:328] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR", 1),
    ("no-gpu", "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", 1),
    ("cpu-too-old", "The TensorFlow library was compiled to use AVX instructions, but these aren't available", 134),
    ("shared-library", "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory", 1),
    ("shared-library", "/lib/libc.so.6: version `GLIBC_2.34' not found (required by x.so)", 1),
    ("too-many-threads", "OpenBLAS blas_thread_init: pthread_create failed for thread 7 of 64", 1),
    ("too-many-threads", "RuntimeError: can't start new thread", 1),
    ("stale-file", "OSError: [Errno 116] Stale file handle: '/data/x'", 1),
    (
        "collective-shapes",
        "InternalError: Shape mismatch in the collective instance 100. Op at device /job:worker/replica:0/task:1/"
        "device:CPU:0 expected shape [3] but another member in the group expected shape [2]. This is likely due to "
        "different input shapes at different members of the collective op.",
        1,
    ),
    (
        "collective-group",
        "Device /job:worker/task:1/device:GPU:1 is joining a group with size 4, but that group has size 3",
        1,
    ),
    ("collective-aborted", "UnavailableError: Collective ops is aborted by: Socket closed", 1),
    ("collective-aborted", "UnavailableError: cluster check alive failed, /job:worker/replica:0/task:1 is down", 1),
    ("bucket-credentials", "Could not locate the credentials file.", 1),
    ("quota-exceeded", "OSError: [Errno 122] Disk quota exceeded", 1),
]


@pytest.mark.parametrize(("name", "words", "code"), REPORTED)
def test_reported_words_are_recognized(name: str, words: str, code: int) -> None:
    assert hint(message=words, reason="Error", exit_code=code) == ADVICE[name]


def test_no_hint_needs_a_field_that_a_tfjob_has_not() -> None:
    """Fields of a DistributedTrainingJob stand in brackets, after words that hold for TFJobs, too."""
    ours = re.compile(r"\b(?:spec|checkpoint|export|accelerator|runPolicy|elastic|replicaSpecs)\.\w+")
    assert [name for name, advice in ADVICE.items() if ours.search(re.sub(r"\([^)]*\)", "", advice))] == []
    assert "tfjob-port" in ADVICE["port-taken"]


def test_each_hint_with_a_source_has_its_words_here() -> None:
    assert {known.name for known in HINTS if known.source} <= {name for name, _, _ in REPORTED}


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\nModuleNotFoundError: No module named 'x'", 1, None),
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", 137, "killed"),
        ("dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory", 1, ""),
    ],
)
def test_what_tensorflow_prints_without_a_gpu_hides_no_real_cause(words: str, code: int, name: str | None) -> None:
    expected = "" if name == "" else ADVICE[name or "module-missing"]
    assert hint(message=words, reason="Error", exit_code=code) == expected
