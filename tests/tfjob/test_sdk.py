"""The SDK ``kubeflow-training`` 1.9.4, with its own test and with all of its methods; pods are played."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from dtj.api.json import JsonObject, dig, objects
from dtj.api.spec import Gang
from support import tfjob_operators
from support.gang_schedulers import COSCHEDULING, VOLCANO, VOLCANO_CRDS
from support.played_pods import Player
from support.slots import Slots
from support.tfjob_sdk import Sdk, sdk
from support.tfjob_world import LABELS, TfJobWorld
from testbed import ControlPlane
from testbed.scheduler_plugins import SchedulerPlugins

Starts: TypeAlias = Callable[[JsonObject], bool]

PROGRAM = Path(__file__).parent / "programs" / "use_all_methods.py"
METHODS = {
    "create_job", "get_job", "list_jobs", "get_job_conditions", "is_job_created", "is_job_running", "is_job_restarting",
    "is_job_succeeded", "is_job_failed", "wait_for_job_conditions", "get_job_pods", "get_job_pod_names", "get_job_logs",
    "update_job", "delete_job",
}  # fmt: skip
"""All but ``train``, which makes PyTorchJobs."""


def test_its_own_test_passes(world: TfJobWorld, upstream: Path, users: Sdk) -> None:
    with Player(world.plane, [world.namespace], lambda _: 0):
        assert "1 passed, 1 skipped" in run_its_own_test(world, upstream, users)  # the skipped one is for gangs


@pytest.mark.parametrize(
    ("scheduler", "gang"), [("scheduler-plugins", Gang.COSCHEDULING), ("volcano", Gang.VOLCANO)], ids=str
)
def test_its_own_test_of_gangs_passes(
    own_control_plane: ControlPlane, upstream: Path, tmp_path: Path, scheduler: str, gang: Gang
) -> None:
    """A job whose gang is larger than the job waits, and runs once the gang is made smaller."""
    plane, theirs = own_control_plane, (f"--gang-scheduler-name={scheduler}",)
    starts, api = (_placed, COSCHEDULING) if gang is Gang.COSCHEDULING else (_gang_is_complete(plane), VOLCANO)
    install_scheduler(plane, gang)
    namespace = plane.new_namespace()
    with (
        tfjob_operators.serving(plane, tmp_path / "operator.log", f"--tfjob-gang-scheduler={gang}", theirs=theirs),
        sdk(plane, tmp_path) as users,
        Player(plane, [namespace], lambda _: 0, starts=starts),
    ):
        said = run_its_own_test(TfJobWorld(plane, namespace), upstream, users, GANG_SCHEDULER_NAME=scheduler)
    assert "1 passed, 1 skipped" in said  # the skipped one is for no gangs
    written = [(each.group, each.verb, each.code) for each in plane.audit.writes(namespace=namespace)]
    assert (api.partition("/")[0], "create", 201) in written


def install_scheduler(plane: ControlPlane, gang: Gang) -> None:
    """The scheduler plugins and a node with room; or the API of Volcano, whose scheduler cannot be built here."""
    if gang is Gang.VOLCANO:
        if tfjob_operators.SERVED_BY == tfjob_operators.THEIRS:
            pytest.skip("training-operator makes no pod before Volcano's scheduler has seen its PodGroup")
        plane.install_crds(VOLCANO_CRDS, server_side=True)
        return
    scheduler = SchedulerPlugins(plane)
    scheduler.install()
    scheduler.start()
    node = Slots(plane, "room")
    node.create(0)
    plane.api.request("PATCH", f"/api/v1/nodes/{node.name}", {"spec": {"taints": None}})


def _placed(pod: JsonObject) -> bool:
    """Whether the scheduler has given the pod a node."""
    return dig(pod, "spec", "nodeName") is not None


def _gang_is_complete(plane: ControlPlane) -> Starts:
    """What Volcano waits for before it places a pod."""

    def group_of(pod: JsonObject) -> object:
        return dig(pod, "metadata", "annotations", "scheduling.k8s.io/group-name")

    def starts(pod: JsonObject) -> bool:
        namespace, name = dig(pod, "metadata", "namespace"), group_of(pod)
        group = plane.api.request("GET", f"/apis/{VOLCANO}/namespaces/{namespace}/podgroups/{name}")
        pods = objects(plane.api.request("GET", f"/api/v1/namespaces/{namespace}/pods").get("items"))
        needed = dig(group, "spec", "minMember")
        return isinstance(needed, int) and len([each for each in pods if group_of(each) == name]) >= needed

    return starts


def run_its_own_test(world: TfJobWorld, upstream: Path, users: Sdk, **environment: str) -> str:
    """What pytest says of it."""
    shutil.copytree(upstream / "sdk" / "python" / "test", users.folder / "test", copy_function=shutil.copyfile)
    options = ("-p", "no:cacheprovider", f"--rootdir={users.folder}", f"--namespace={world.namespace}")
    return users.run("-m", "pytest", "-q", *options, "test/e2e/test_e2e_tfjob.py", **environment).stdout


def test_each_method_gives_what_its_user_expects(world: TfJobWorld, users: Sdk) -> None:
    """The program asserts that, and says which methods it has called, of which."""
    first: list[object] = []

    def starts(pod: JsonObject) -> bool:
        """Of the job that restarts, one pod does."""
        if dig(pod, "metadata", "labels", f"{LABELS}/job-name") == "again":
            first.append(dig(pod, "metadata", "uid"))
            return first[0] == first[-1]
        return True

    with Player(world.plane, [world.namespace], _end, starts=starts):
        done = users.run(PROGRAM, world.namespace)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert set(report["called"]) == METHODS
    assert set(report["all"]) == METHODS | {"train"}


def _end(pod: JsonObject) -> int | None:
    """A pod ends when the program says so."""
    code = dig(pod, "metadata", "annotations", "test/exit-code")
    return None if code is None else int(str(code))
