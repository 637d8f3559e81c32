"""Names of jobs, completed from a real API server."""

from __future__ import annotations

import time
from pathlib import Path

import yaml

from builders import manifest
from dtj.cli.common.options import PATIENCE
from dtj.cli.completion import kubectl_lines
from dtj.cli.main import cli
from support.kubeconfigs import copied
from testbed import ControlPlane


def test_the_jobs_of_the_namespace_are_offered(cluster: ControlPlane, namespace: str) -> None:
    jobs = yaml.safe_dump_all([manifest("digits"), manifest("reviews")])
    cluster.kubectl("apply", "--namespace", namespace, "--filename", "-", stdin=jobs)
    options = ["--kubeconfig", str(cluster.kubeconfig), "-n", namespace]
    assert list(kubectl_lines(cli, ["status", *options, ""])) == ["digits", "reviews", ":4"]
    assert list(kubectl_lines(cli, ["delete", *options, "digits", "r"])) == ["reviews", ":4"]


def test_a_cluster_that_does_not_answer_keeps_nobody_waiting(cluster: ControlPlane, tmp_path: Path) -> None:
    # An address that no one has (RFC 5737).
    file = copied(cluster.kubeconfig, tmp_path, server="https://192.0.2.1:6443")
    began = time.monotonic()
    assert list(kubectl_lines(cli, ["status", "--kubeconfig", str(file), ""])) == [":4"]
    assert time.monotonic() - began < PATIENCE + 60, "the system tries to connect for two minutes"
