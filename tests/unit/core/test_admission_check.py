"""What is checked before a pod is created: the template by the API server, the accelerators by their profiles."""

from __future__ import annotations

from builders import job
from dtj.api.names import Condition, Reason
from dtj.core.actions import CheckPods, PatchStatus, RequeueAfter
from world import World


def test_templates_are_checked_before_anything_is_created() -> None:
    world = World(job(strategy="ParameterServer", roles={"chief": 1, "worker": 4, "ps": 2}))
    (check,) = world.step()
    assert isinstance(check, CheckPods)
    assert [m["metadata"]["name"] for m in check.manifests] == [  # type: ignore[index,call-overload]
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


def test_a_template_that_is_rejected_once_the_job_runs_does_not_make_it_invalid() -> None:
    world = World(job(roles={"worker": 2})).settle()
    world.verdict = None
    world.template_errors = ("worker: the server's mind has changed",)
    world.remove("worker-1")
    world.settle()
    assert not world.is_true(Condition.INVALID)
    assert "digits-worker-1" in world.pods, "its creation says what is wrong, where something is"
