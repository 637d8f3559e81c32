"""Which pods are made to fit the Pod Security Standard "restricted", and what is reported of those that cannot be."""

from __future__ import annotations

from dataclasses import replace

from builders import job
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Reason
from dtj.core.actions import CheckPods, Emit
from world import World


def is_restricted(manifest: JsonObject) -> bool:
    return dig(manifest, "spec", "securityContext", "runAsNonRoot") is True


class TestRestrictedNamespaces:
    def test_pods_fit_a_namespace_that_enforces_the_restricted_standard(self) -> None:
        world = World(job(roles={"worker": 2, "chief": 1}), enforces_restricted=True).settle()
        assert len(world.manifests) == 3
        assert all(map(is_restricted, world.manifests.values()))
        assert not world.is_true(Condition.INVALID)
        assert len(world.taken(CheckPods)) == 2, "as they are, and restricted"

    def test_what_does_not_fit_even_so_is_invalid_in_the_servers_own_words(self) -> None:
        words = 'worker: violates PodSecurity "restricted:latest": restricted volume types'
        world = World(job(), enforces_restricted=True, template_errors=(words,)).settle()
        assert world.is_true(Condition.INVALID)
        assert world.events[-1] == Emit("Warning", Reason.TEMPLATE_REJECTED, words)
        assert not world.pods

    def test_a_pod_that_replaces_another_after_a_restart_of_the_operator_is_restricted_too(self) -> None:
        world = World(job(roles={"worker": 2}), enforces_restricted=True).settle()
        world.verdict = None
        assert world.step() == (), "nothing is to be created: nothing is asked"
        world.remove("worker-1")
        world.settle()
        assert is_restricted(world.manifests["digits-worker-1"])
        assert len(world.taken(CheckPods)) == 4

    def test_a_verdict_of_another_generation_counts_for_nothing(self) -> None:
        world = World(job(roles={"worker": 2})).settle()
        world.job = replace(world.job, generation=2)
        world.settle()
        assert len(world.taken(CheckPods)) == 1, "nothing is to be created"
        world.remove("worker-1")
        assert [type(action) for action in world.step()] == [CheckPods]
