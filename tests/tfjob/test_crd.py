"""A CRD of TFJobs that is not there yet, or that drops the operator's record: a control plane of its own has it so."""

from __future__ import annotations

from pathlib import Path

import yaml

from dtj.kube.rbac import FOR_TFJOBS
from support import tfjob_operators
from support.operator_process import OperatorProcess, grant
from support.tfjob_world import TfJobWorld, tfjob
from testbed import ControlPlane


def test_nothing_is_done_until_the_crd_keeps_the_operators_record(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    namespace = own_control_plane.new_namespace()
    grant(own_control_plane, namespace, FOR_TFJOBS)
    world = TfJobWorld(own_control_plane, namespace)
    log = tmp_path / "operator.log"
    with OperatorProcess.serving(own_control_plane, [namespace], "--tfjobs", log=log) as operator:
        operator.await_line("CustomResourceDefinition tfjobs.kubeflow.org is not installed")
        definition = yaml.safe_load(tfjob_operators.CRD.read_text())
        del definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["dtj"]
        kubeflows = tmp_path / "crd.yaml"
        kubeflows.write_text(yaml.safe_dump(definition))
        tfjob_operators.install(own_control_plane, kubeflows)
        world.create(tfjob("early", {"Worker": 1}))
        assert "run helm upgrade with tfjob.crd.enabled=true" in operator.await_line("drops status.dtj")
        assert not world.pods("early")
        assert "status" not in world.job("early")
        tfjob_operators.install(own_control_plane)
        world.await_pods("early", "worker-0")
