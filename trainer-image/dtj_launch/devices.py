"""The NVIDIA GPUs of this task and the versions of its libraries: what it announces to its peers at the start gate.

They are counted without CUDA and TensorFlow, from what the container runtime has put into the container, so that a task
of any image has it. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Tuple  # noqa: UP035  # evaluated, by any Python that a foreign image may have

ROOT = "/"
"""Where the files of this machine are."""

_NODE = re.compile(r"nvidia(\d+)")
_INFORMATION = re.compile(r"^(GPU UUID|Device Minor):\s*(\S+)", re.MULTILINE)
_IDENTITY = ("GPU-", "MIG-")
"""How identities begin."""
_ID_LENGTH = 8
_MOST_IDS = 16
_TENSORFLOWS = ("tensorflow", "tf-nightly", "tensorflow-cpu")
_NCCLS = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
_NO_VERSION = re.compile(r"[^\w.+-]")


@dataclass(frozen=True)
class Devices:
    """What one task has. Versions are empty where they are not known, and where there is no GPU."""

    gpus: int = 0
    ids: Tuple[str, ...] = ()  # noqa: UP006
    """The beginnings of the GPUs' identities, where the driver tells them."""
    tensorflow: str = ""
    nccl: str = ""
    communication: str = ""
    """How it is told to send gradients."""

    def __str__(self) -> str:
        """As it is announced: one word."""
        known = {
            "ids": "/".join(self.ids),
            "tensorflow": self.tensorflow,
            "nccl": self.nccl,
            "communication": self.communication,
        }
        return ",".join([f"gpus={self.gpus}", *(f"{name}={value}" for name, value in known.items() if value)])


def parse(announced: str) -> Devices | None:
    """Reads what a peer has announced; None of one that has announced nothing."""
    values = dict(pair.partition("=")[::2] for pair in announced.split(","))
    gpus = values.get("gpus", "")
    if not re.fullmatch("[0-9]{1,4}", gpus):
        return None
    ids = tuple(filter(None, values.get("ids", "").split("/")))
    texts = {name: values.get(name, "") for name in ("tensorflow", "nccl", "communication")}
    return Devices(int(gpus), ids, **texts)


def found(environ: Mapping[str, str], communication: str) -> Devices:
    """What this task has, and what it is told. Without a GPU, nothing is looked for that takes time."""
    gpus = visible(environ)
    if not gpus:
        return Devices(communication=communication)
    nccl = _version(_NCCLS) or environ.get("NCCL_VERSION", "")  # the latter in NVIDIA's images
    return Devices(gpus, _ids(environ), _version(_TENSORFLOWS), _NO_VERSION.sub("", nccl)[:20], communication)


def granted(environ: Mapping[str, str]) -> int:
    """How many GPUs the container was given: those that are named, else those that have a device file.

    A name that is no identity, such as "all" or "void", says nothing: images have it, and it holds for no node.
    """
    files = _minors()
    named = [name.strip() for name in environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")]
    if files and all(name.isdecimal() or name.startswith(_IDENTITY) for name in named):
        return len(named)
    return len(files)


def visible(environ: Mapping[str, str]) -> int:
    """How many of them CUDA will use: it reads CUDA_VISIBLE_DEVICES up to the first name of no device."""
    count = granted(environ)
    chosen = environ.get("CUDA_VISIBLE_DEVICES")
    return count if chosen is None else len(list(_chosen(chosen, count)))


def _chosen(names: str, count: int) -> Iterable[str]:
    for name in map(str.strip, names.split(",")):
        if not (name.startswith(_IDENTITY) or (name.isdecimal() and int(name) < count)):
            return
        yield name


def _minors() -> list[int]:
    with suppress(OSError):
        return sorted(int(file[1]) for file in map(_NODE.fullmatch, os.listdir(os.path.join(ROOT, "dev"))) if file)
    return []


def _ids(environ: Mapping[str, str]) -> Tuple[str, ...]:  # noqa: UP006
    identities = _identities()
    own = [identities[minor] for minor in _minors() if minor in identities]
    names = environ.get("CUDA_VISIBLE_DEVICES")
    if names is not None:
        chosen = list(_chosen(names, len(own)))
        own = [own[int(name)] if name.isdecimal() else name for name in chosen]
    return tuple(one[len(_IDENTITY[0]) :][:_ID_LENGTH] for one in own)[:_MOST_IDS]


def _identities() -> dict[int, str]:
    """Number of the device file -> identity, of all GPUs of the machine that the driver shows here."""
    found, folder = {}, os.path.join(ROOT, "proc/driver/nvidia/gpus")
    with suppress(OSError):
        for gpu in os.listdir(folder):
            with open(os.path.join(folder, gpu, "information"), encoding="utf-8", errors="replace") as file:
                said = dict(_INFORMATION.findall(file.read()))
            if said.get("GPU UUID", "").startswith(_IDENTITY) and said.get("Device Minor", "").isdecimal():
                found[int(said["Device Minor"])] = said["GPU UUID"]
    return found


def _version(names: Iterable[str]) -> str:
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            return _NO_VERSION.sub("", metadata.version(name))[:40]
    return ""
