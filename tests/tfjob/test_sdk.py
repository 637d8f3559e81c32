"""The SDK ``kubeflow-training`` 1.9.4, with its own test and with all of its methods; pods are played."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from dtj.api.json import JsonObject, dig
from support.played_pods import Player
from support.tfjob_sdk import Sdk
from support.tfjob_world import LABELS, TfJobWorld

PROGRAM = Path(__file__).parent / "programs" / "use_all_methods.py"
METHODS = {
    "create_job", "get_job", "list_jobs", "get_job_conditions", "is_job_created", "is_job_running", "is_job_restarting",
    "is_job_succeeded", "is_job_failed", "wait_for_job_conditions", "get_job_pods", "get_job_pod_names", "get_job_logs",
    "update_job", "delete_job",
}  # fmt: skip
"""All but ``train``, which makes PyTorchJobs."""


def test_its_own_test_passes(world: TfJobWorld, upstream: Path, users: Sdk) -> None:
    shutil.copytree(upstream / "sdk" / "python" / "test", users.folder / "test", copy_function=shutil.copyfile)
    options = ("-p", "no:cacheprovider", f"--rootdir={users.folder}", f"--namespace={world.namespace}")
    with Player(world.plane, [world.namespace], lambda _: 0):
        done = users.run("-m", "pytest", "-q", *options, "test/e2e/test_e2e_tfjob.py")
    assert "1 passed, 1 skipped" in done.stdout  # the skipped one is for gangs


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
