"""Who serves the TFJobs of a cluster: this operator, or training-operator, by which the tests themselves are judged."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.chart import Helm, operator_rules
from support.operator_process import USER, OperatorProcess
from support.snippets import ROOT
from support.waiting import eventually_true
from testbed import ApiError, ControlPlane, binaries
from testbed.peers import TFJOBS, TrainingOperator

CRD = ROOT / "charts" / "dtj" / "files" / "tfjob-crd.yaml"

THEIRS = "training-operator"
SERVED_BY = os.environ.get("DTJ_TFJOBS_SERVED_BY", "dtj")
"""The judges are right if they are green with training-operator, too: DTJ_TFJOBS_SERVED_BY=training-operator."""


def install(plane: ControlPlane, crd: Path = CRD) -> None:
    """Have the API server serve TFJobs, by our CRD or by another."""
    plane.kubectl("apply", "--server-side", "--force-conflicts", "--filename", str(crd))
    eventually_true(lambda: _is_served(plane))


def _is_served(plane: ControlPlane) -> bool:
    try:
        return any(each["kind"] == "TFJob" for each in plane.api.request("GET", TFJOBS)["resources"])
    except ApiError:
        return False


def grant_everywhere(plane: ControlPlane) -> None:
    """Give the operator the rights that the chart gives it, in the whole cluster."""
    with tempfile.TemporaryDirectory() as home:
        helm = Helm(program=binaries.ensure(("helm",))["helm"], home=Path(home))
        rules = operator_rules(helm.objects({"tfjob": {"enabled": True}}))["*"]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": USER}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER}
    plane.apply(
        {**kind, "kind": "ClusterRole", "rules": rules},
        {**kind, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    )


def ours(plane: ControlPlane, *arguments: str, log: Path) -> OperatorProcess:
    """This operator, for TFJobs of the whole cluster; not started yet."""
    return OperatorProcess(plane.kubeconfig_for(USER), "--tfjobs", *arguments, log=log)


@contextmanager
def serving(plane: ControlPlane, log: Path, *arguments: str, theirs: Sequence[str] = ()) -> Iterator[None]:
    """Somebody serves the TFJobs of the cluster. Ours is given the arguments, and may not log an error."""
    if SERVED_BY == THEIRS:
        other = TrainingOperator(plane)
        other.install()
        other.start(*theirs, user=THEIRS)
        yield
        other.stop()
        return
    install(plane)
    grant_everywhere(plane)
    with ours(plane, *arguments, log=log) as operator:
        operator.await_serving()
        yield
        assert not operator.defects, "\n".join(operator.defects)
