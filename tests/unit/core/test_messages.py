"""Words of others, however long, keep no job from being planned."""

from __future__ import annotations

from datetime import timedelta

from builders import NOW, job, pod, seen
from dtj.api.names import Condition
from dtj.core.actions import Emit
from dtj.core.messages import MAX_MESSAGE, cut
from dtj.core.observed import Phase, TemplateVerdict
from dtj.core.planner import plan
from world import running


def test_names_that_are_taken_are_counted_where_there_are_many() -> None:
    wanted = job(roles={"worker": 1400})
    old = tuple(pod(wanted, f"worker-{index}", owner_uid="the-predecessor") for index in range(1400))
    observed = seen(wanted, pods=old, verdict=TemplateVerdict(1, NOW))
    (emitted,) = (action for action in plan(observed, NOW + timedelta(seconds=15)) if isinstance(action, Emit))
    assert emitted.message.startswith(
        'pod "digits-worker-0", pod "digits-worker-1", pod "digits-worker-10" and 1397 more already exist and are not'
    )


def test_a_job_of_many_failed_pods_gets_its_end() -> None:
    world = running(roles={"chief": 1, "worker": 1000})
    for index in range(1000):
        world.set_pod(f"worker-{index}", Phase.FAILED, exit_code=75)
    world.sees("chief-0", Phase.SUCCEEDED)
    assert world.is_true(Condition.COMPLETE)
    assert world.condition(Condition.COMPLETE).message.endswith("and 997 more failed after that")


def test_a_message_keeps_its_beginning_and_its_end() -> None:
    shown = cut("the cause: " + "x" * 100_000 + "; the remedy")
    assert len(shown) == MAX_MESSAGE
    assert shown.startswith("the cause: xxx")
    assert "100,023 characters in all" in shown
    assert shown.endswith("x; the remedy")
    assert cut(shown) == shown
