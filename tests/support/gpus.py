"""Folders that look like the parts of a machine with NVIDIA GPUs that are read without CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def machine(root: Path, *, files: Sequence[int] = (), driver: Sequence[int] | None = None, name: str = "a") -> Path:
    """A root with these device files.

    Args:
        driver: the GPUs that the driver shows, where these are others.
        name: tells the GPUs of two machines apart.
    """
    (root / "dev").mkdir(parents=True)
    for file in ("null", "nvidiactl", "nvidia-uvm", "nvidia-modeset", *(f"nvidia{number}" for number in files)):
        (root / "dev" / file).touch()
    for number in files if driver is None else driver:
        folder = root / "proc/driver/nvidia/gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 202\n"
            f"GPU UUID: \t GPU-{name}000000{number}-4d2a-12ab-81cd-6bfa1b9e8f00\n"
            f"Video BIOS: \t 92.00.45.00.05\nBus Type: \t PCIe\nDevice Minor: \t {number}\nGPU Excluded:\t No\n"
        )
    return root
