"""A real Kubernetes on one machine, without Docker: see README.md."""

from testbed.audit import AuditLog, AuditRecord
from testbed.cluster import Cluster, Image
from testbed.control_plane import ControlPlane
from testbed.errors import ApiError, KubectlError, StartError, Unavailable
from testbed.node_cluster import NodeCluster

__all__ = [
    "ApiError",
    "AuditLog",
    "AuditRecord",
    "Cluster",
    "ControlPlane",
    "Image",
    "KubectlError",
    "NodeCluster",
    "StartError",
    "Unavailable",
]
