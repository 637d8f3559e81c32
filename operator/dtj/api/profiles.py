"""Accelerator profiles: how a kind of accelerator is asked for on a kind of cluster.

A manifest names a profile; the operator's configuration holds what it means, so that the same manifest works
wherever a platform engineer gives the name a meaning. The shipped ones follow the providers' own labels:
GKE (``cloud.google.com/gke-accelerator``, ``cloud.google.com/gke-tpu-accelerator``), EKS Auto Mode
(``eks.amazonaws.com/instance-gpu-name``), AKS (``kubernetes.azure.com/accelerator``), NVIDIA's GPU Feature
Discovery (``nvidia.com/gpu.product``) and AMD's device plugin (``amd.com/gpu``).
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from dtj.api.json import JsonObject

GPU_TAINT: Final[JsonObject] = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TPU_TAINT: Final[JsonObject] = {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
TPU_TOPOLOGY_LABEL: Final = "cloud.google.com/gke-tpu-topology"


def _whole_number_as_text(value: object) -> object:
    """Kubernetes takes a quantity of whole units as a number, too."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class TpuHosts(BaseModel):
    """How many chips one host of a TPU generation has.

    ``chips_per_host`` holds in slices of several hosts; ``single_host`` lists the slices that are one host.
    Source: Google Cloud, "Plan TPUs in GKE", table of machine types.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    chips_per_host: int = Field(ge=1)
    single_host: tuple[int, ...] = ()
    not_driven: str = ""
    """Why no chief drives the hosts of such a slice, in the words of a message; empty where it may."""


class Profile(BaseModel):
    """What a pod needs to get this accelerator: extended resource, node labels, tolerations."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=63)
    resource: str = Field(min_length=1)
    node_selector: dict[str, str] = {}
    tolerations: tuple[JsonObject, ...] = ()
    resources: dict[str, Annotated[str, BeforeValidator(_whole_number_as_text)]] = {}
    """What each pod needs besides, whatever its number of devices: network devices, and huge pages for them."""
    capabilities: tuple[str, ...] = ()
    """Capabilities of Linux that its container needs."""
    tpu: TpuHosts | None = None


def _nvidia(name: str, *, label: str, value: str) -> Profile:
    return Profile(name=name, resource="nvidia.com/gpu", node_selector={label: value}, tolerations=(GPU_TAINT,))


def _efa(name: str, *, instance: str, interfaces: int) -> Profile:
    """A machine of AWS with eight GPUs as a whole. Its driver of EFA keeps buffers in huge pages, in locked memory.

    Source: AWS, "Run machine learning training on Amazon EKS with Elastic Fabric Adapter".
    """
    return Profile(
        name=name,
        resource="nvidia.com/gpu",
        node_selector={"node.kubernetes.io/instance-type": instance},
        tolerations=(GPU_TAINT, {"key": "vpc.amazonaws.com/efa", "operator": "Exists", "effect": "NoSchedule"}),
        resources={"vpc.amazonaws.com/efa": str(interfaces), "hugepages-2Mi": "5120Mi"},
        capabilities=("IPC_LOCK",),
    )


def _tpu(name: str, *, accelerator: str, single_host: tuple[int, ...] = (), not_driven: str = "") -> Profile:
    return Profile(
        name=name,
        resource="google.com/tpu",
        node_selector={"cloud.google.com/gke-tpu-accelerator": accelerator},
        tolerations=(TPU_TAINT,),
        tpu=TpuHosts(chips_per_host=4, single_host=single_host, not_driven=not_driven),
    )


_GKE: Final = "cloud.google.com/gke-accelerator"
_EKS: Final = "eks.amazonaws.com/instance-gpu-name"
_GFD: Final = "nvidia.com/gpu.product"

_SHIPPED: Final = (
    Profile(name="nvidia", resource="nvidia.com/gpu", tolerations=(GPU_TAINT,)),
    _nvidia("gke-nvidia-t4", label=_GKE, value="nvidia-tesla-t4"),
    _nvidia("gke-nvidia-v100", label=_GKE, value="nvidia-tesla-v100"),
    _nvidia("gke-nvidia-l4", label=_GKE, value="nvidia-l4"),
    _nvidia("gke-nvidia-a100", label=_GKE, value="nvidia-tesla-a100"),
    _nvidia("gke-nvidia-a100-80gb", label=_GKE, value="nvidia-a100-80gb"),
    _nvidia("gke-nvidia-h100-80gb", label=_GKE, value="nvidia-h100-80gb"),
    _nvidia("gke-nvidia-h200-141gb", label=_GKE, value="nvidia-h200-141gb"),
    _nvidia("gke-nvidia-b200", label=_GKE, value="nvidia-b200"),
    _nvidia("eks-nvidia-t4", label=_EKS, value="t4"),
    _nvidia("eks-nvidia-v100", label=_EKS, value="v100"),
    _nvidia("eks-nvidia-a10g", label=_EKS, value="a10g"),
    _nvidia("eks-nvidia-l4", label=_EKS, value="l4"),
    _nvidia("eks-nvidia-l40s", label=_EKS, value="l40s"),
    _nvidia("eks-nvidia-a100", label=_EKS, value="a100"),
    _nvidia("eks-nvidia-h100", label=_EKS, value="h100"),
    _nvidia("eks-nvidia-h200", label=_EKS, value="h200"),
    _nvidia("eks-nvidia-b200", label=_EKS, value="b200"),
    _efa("eks-p4d-efa", instance="p4d.24xlarge", interfaces=4),
    _efa("eks-p5-efa", instance="p5.48xlarge", interfaces=32),
    _efa("eks-p5en-efa", instance="p5en.48xlarge", interfaces=16),
    Profile(
        name="aks-nvidia",
        resource="nvidia.com/gpu",
        node_selector={"kubernetes.azure.com/accelerator": "nvidia"},
        tolerations=(GPU_TAINT, {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}),
    ),
    _nvidia("nvidia-t4", label=_GFD, value="Tesla-T4"),
    _nvidia("nvidia-a10g", label=_GFD, value="NVIDIA-A10G"),
    _nvidia("nvidia-l4", label=_GFD, value="NVIDIA-L4"),
    _nvidia("nvidia-l40s", label=_GFD, value="NVIDIA-L40S"),
    _nvidia("nvidia-a100-40gb", label=_GFD, value="NVIDIA-A100-SXM4-40GB"),
    _nvidia("nvidia-a100-80gb", label=_GFD, value="NVIDIA-A100-SXM4-80GB"),
    _nvidia("nvidia-h100-80gb", label=_GFD, value="NVIDIA-H100-80GB-HBM3"),
    _nvidia("nvidia-h200", label=_GFD, value="NVIDIA-H200"),
    _nvidia("nvidia-b200", label=_GFD, value="NVIDIA-B200"),
    Profile(
        name="amd",
        resource="amd.com/gpu",
        tolerations=({"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
    ),
    # What is known of slices that a chief drives is one report (tensorflow/tensorflow#93618); none was run here.
    _tpu("tpu-v4", accelerator="tpu-v4-podslice", not_driven="TensorFlow 2.19 hangs on it"),
    _tpu("tpu-v5e", accelerator="tpu-v5-lite-podslice", single_host=(1, 4, 8)),
    _tpu("tpu-v5p", accelerator="tpu-v5p-slice", not_driven="no report says that TensorFlow works on it"),
    _tpu("tpu-v6e", accelerator="tpu-v6e-slice", single_host=(1, 4, 8), not_driven="TensorFlow 2.19 fails on it"),
)

SHIPPED_PROFILES: Final[dict[str, Profile]] = {profile.name: profile for profile in _SHIPPED}
"""The profiles that every operator knows; configuration adds to them and may replace them by name."""
