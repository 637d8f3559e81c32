"""What is checked before a pod is created: whether the API server takes it, as it is or restricted."""

from __future__ import annotations

from dataclasses import replace

from builders import job
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Reason
from dtj.core.actions import CheckPods, Emit, PatchStatus, RequeueAfter
from world import World


def test_templates_are_checked_before_anything_is_created() -> None:
    world = World(job(strategy="ParameterServer", roles={"chief": 1, "worker": 4, "ps": 2}))
    (check,) = world.step()
    assert isinstance(check, CheckPods)
    assert [dig(made, "metadata", "name") for made in check.manifests] == [
        "digits-chief-0",
        "digits-worker-0",
        "digits-ps-0",
    ]


def test_what_keeps_the_template_from_being_checked_is_shown_once() -> None:
    world = World(job(), obstacle="failed calling webhook")
    patch, check = world.planned()
    assert (type(patch), type(check)) == (PatchStatus, CheckPods)
    world.step()
    assert world.job.status.reason == Reason.API_CALL_FAILED
    world.verdict = None
    assert [type(action) for action in world.planned()] == [CheckPods]


def test_a_rejected_template_is_asked_about_again() -> None:
    world = World(job(), template_errors=("worker: a policy refuses it",)).settle()
    assert world.planned() == (RequeueAfter(60.0),)
    world.template_errors = ()
    world.advance(30)
    assert world.planned() == (RequeueAfter(30.0),)
    world.wait(30)
    assert world.pods
    assert not world.is_true(Condition.INVALID)


def test_a_rejected_template_is_asked_about_again_after_the_clock_was_set_back() -> None:
    world = World(job(), template_errors=("worker: a policy refuses it",)).settle()
    world.template_errors = ()
    world.wait(-3600)
    assert world.pods


def test_a_template_that_is_rejected_once_the_job_runs_does_not_make_it_invalid() -> None:
    world = World(job(roles={"worker": 2})).settle()
    world.verdict = None
    world.template_errors = ("worker: the server's mind has changed",)
    world.remove("worker-1")
    world.settle()
    assert not world.is_true(Condition.INVALID)
    assert "digits-worker-1" in world.pods, "its creation says what is wrong, where something is"


def is_restricted(manifest: JsonObject) -> bool:
    return dig(manifest, "spec", "securityContext", "runAsNonRoot") is True


class TestRestrictedNamespaces:
    def test_what_does_not_fit_even_so_is_invalid_in_the_servers_own_words(self) -> None:
        words = 'worker: violates PodSecurity "restricted:latest": restricted volume types'
        world = World(job(), enforces_restricted=True, template_errors=(words,)).settle()
        assert world.is_true(Condition.INVALID)
        assert world.events[-1] == Emit("Warning", Reason.TEMPLATE_REJECTED, words)
        assert not world.pods

    def test_a_pod_that_replaces_another_after_a_restart_of_the_operator_is_restricted_too(self) -> None:
        world = World(job(roles={"worker": 2}), enforces_restricted=True).settle()
        assert all(map(is_restricted, world.manifests.values()))
        assert len(world.taken(CheckPods)) == 2, "as they are, and restricted"
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
