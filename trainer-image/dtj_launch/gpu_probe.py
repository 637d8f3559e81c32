"""Asks the driver and the libraries of CUDA, and how this TensorFlow was built: a program that prints JSON.

A process of its own, since what has used CUDA cannot fork, and a broken library may end it. It imports no TensorFlow.
Standard library only; runs as a file.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import json
import os
import runpy
from typing import Any

LIBRARIES = {
    12: ("cudart.so.12", "cublas.so.12", "cublasLt.so.12", "cufft.so.11", "cusolver.so.11", "cusparse.so.12"),
}
"""Major version of CUDA -> what TensorFlow opens when it looks for GPUs (xla/tsl/platform/default/dso_loader.cc)."""
_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*."""


def build() -> dict[str, Any] | None:
    """How the TensorFlow that this Python finds was built; None without one."""
    spec = importlib.util.find_spec("tensorflow")
    for folder in spec.submodule_search_locations or () if spec else ():
        file = os.path.join(folder, "python", "platform", "build_info.py")
        if os.path.exists(file):
            info = runpy.run_path(file)["build_info"]
            return {
                "folder": folder,
                "is_cuda": bool(info.get("is_cuda_build")),
                "cuda": str(info.get("cuda_version", "")),
                "cudnn": str(info.get("cudnn_version", "")),
                "capabilities": [str(one) for one in info.get("cuda_compute_capabilities", ())],
            }
    return None


def libraries(built: dict[str, Any]) -> dict[str, str | None]:
    """Name -> why it cannot be loaded, or None; in the order in which the loader and TensorFlow's own paths find it."""
    major = built["cuda"].partition(".")[0]
    if not built["is_cuda"] or not major.isdecimal() or int(major) not in LIBRARIES:
        return {}
    cudnn = built["cudnn"].partition(".")[0]
    names = [*LIBRARIES[int(major)], *([f"cudnn.so.{cudnn}"] if cudnn.isdecimal() else []), "nccl.so.2"]
    return {f"lib{name}": _failure(f"lib{name}", os.path.dirname(built["folder"])) for name in names}


def _failure(name: str, packages: str) -> str | None:
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    paths = [os.path.join(folder, name) for folder in folders]
    paths += glob.glob(os.path.join(glob.escape(packages), "nvidia", "*", "lib", name))
    try:
        ctypes.CDLL(next(filter(os.path.exists, paths), name))
    except OSError as error:
        return str(error)
    return None


def driver() -> dict[str, Any]:
    """Its version, as CUDA numbers it, and the compute capability of each GPU that it shows; or its error."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"missing": str(error)}
    version, count = ctypes.c_int(), ctypes.c_int()
    for call, *arguments in (
        (cuda.cuInit, 0),
        (cuda.cuDriverGetVersion, ctypes.byref(version)),
        (cuda.cuDeviceGetCount, ctypes.byref(count)),
    ):
        code = call(*arguments)
        if code:
            return {"error": _error(cuda, code)}
    gpus = []
    for index in range(count.value):
        device, number = ctypes.c_int(), ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        capability = []
        for attribute in (_MAJOR, _MINOR):
            cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            capability.append(number.value)
        gpus.append(capability)
    return {"version": version.value, "gpus": gpus}


def _error(cuda: ctypes.CDLL, code: int) -> str:
    name = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(name))
    return (name.value or b"").decode(errors="replace") or f"error {code}"


if __name__ == "__main__":
    built = build()
    print(json.dumps({"build": built, "libraries": libraries(built) if built else {}, "driver": driver()}))
