"""Values of a manifest are what kubectl makes of them."""

from __future__ import annotations

import json
from pathlib import Path

from dtj.api.json import dig
from dtj.client.manifest_files import read
from testbed import ControlPlane

VALUES = (
    *("2.0", "2", "1e3", "1E3", "1e+3", "1.5e3", ".5", "5.", "+1", "-1", "+1.5", "0.1", "1e-7", "-0.0", "08", "12e03"),
    *("0o17", "017", "0x1F", "0b11", "1_000", "1_000.5", "1__0", "0x", "0b", "1.2.3", "1,000", "1e", "._5", "Infinity"),
    *("1:30", "12:30:45", "2024-01-01", "yes", "No", "on", "OFF", "y", "N", "true", "True", "~", "null", "Null", "="),
    *("!!str 2", "!!float 2", "nan", "1e20", "123456.0"),
)
"""Numbers, words and times as people write them."""


def test_values_are_read_as_kubectl_reads_them(cluster: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    head = "apiVersion: training.dtj.dev/v1alpha1\nkind: DistributedTrainingJob\nmetadata: {name: a}\nspec:\n"
    file.write_text(head + "".join(f"  - {value}\n" for value in VALUES))
    shown = cluster.kubectl("create", "--dry-run=client", "--validate=false", "--output=json", "--filename", str(file))
    (document,) = read(str(file))
    ours, theirs = document.body["spec"], dig(json.loads(shown.stdout), "spec")
    assert isinstance(ours, list)
    assert isinstance(theirs, list)
    wrong = {
        value: (mine, other)
        for value, mine, other in zip(VALUES, ours, theirs, strict=True)
        if mine != other
        or isinstance(mine, bool) != isinstance(other, bool)
        or isinstance(mine, str) != isinstance(other, str)
    }
    assert wrong == {}
