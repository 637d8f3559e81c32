"""What the chart makes of the number of shards."""

from __future__ import annotations

import pytest

from dtj.api.json import JsonObject, dig, objects
from support.chart import Helm, HelmError, of_kind


def test_shards_give_each_replica_their_number_and_the_right_to_a_lease_each(helm: Helm) -> None:
    rendered = helm.objects({"replicas": 3, "shards": 3})
    (deployment,) = of_kind(rendered, "Deployment")
    arguments = dig(deployment, "spec", "template", "spec", "containers", 0, "args")
    assert isinstance(arguments, list)
    assert "--shards=3" in arguments
    assert dig(deployment, "spec", "strategy", "type") == "Recreate"
    rules = [rule for role in of_kind(rendered, "Role") for rule in objects(role["rules"])]
    (leases,) = [rule["resourceNames"] for rule in rules if "resourceNames" in rule]
    assert leases == ["dtj", "dtj-1", "dtj-2"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"shards": 0}, "minimum: got 0, want 1"),
        ({"shards": 101}, "maximum: got 101, want 100"),
        ({"shards": 2, "replicas": 1, "leaderElection": {"enabled": False}}, "set shards to 1"),
        ({"shards": 3, "namespaces": ["a", "b"]}, "set at most as many shards as namespaces"),
    ],
)
def test_it_refuses_a_number_that_cannot_be_used(helm: Helm, values: JsonObject, complaint: str) -> None:
    with pytest.raises(HelmError) as error:
        helm.render(values)
    assert complaint in str(error.value)
