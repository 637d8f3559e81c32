"""Who serves the TFJobs of a cluster: this operator, or training-operator, by which the tests themselves are judged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dtj.kube import rbac
from support.operator_process import USER, OperatorProcess, rules_of
from support.snippets import ROOT
from support.waiting import eventually_true
from testbed import ApiError, ControlPlane
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
    """Give the operator its rights in the whole cluster, with TFJobs."""
    rules = rules_of(rbac.NAMESPACE_RULES, rbac.FOR_TFJOBS, rbac.FOR_NETWORK_POLICIES, *rbac.FOR_GANGS.values())
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": USER}}
    plane.apply(
        {**kind, "kind": "ClusterRole", "rules": rules},
        {
            **kind,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER}],
        },
    )


def ours(plane: ControlPlane, *arguments: str, log: Path) -> OperatorProcess:
    """This operator, for TFJobs of the whole cluster; not started yet."""
    return OperatorProcess(plane.kubeconfig_for(USER), "--tfjobs", *arguments, log=log)


@contextmanager
def serving(plane: ControlPlane, log: Path) -> Iterator[None]:
    """Somebody serves the TFJobs of the cluster. Ours may not log an error."""
    if SERVED_BY == THEIRS:
        theirs = TrainingOperator(plane)
        theirs.install()
        theirs.start(user=THEIRS)
        yield
        theirs.stop()
        return
    install(plane)
    grant_everywhere(plane)
    with ours(plane, log=log) as operator:
        operator.await_serving()
        yield
        defects = [line for line in operator.lines() if " ERROR " in line or "Traceback" in line]
        assert not defects, "\n".join(defects)
