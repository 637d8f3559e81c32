"""A real Kubernetes control plane on one machine, without Docker: see README.md."""

from testbed.audit import AuditLog, AuditRecord
from testbed.control_plane import ControlPlane
from testbed.errors import ApiError, KubectlError, StartError, Unavailable

__all__ = ["ApiError", "AuditLog", "AuditRecord", "ControlPlane", "KubectlError", "StartError", "Unavailable"]
