"""Jobs by real processes whose data, checkpoints, logs and exports are in a bucket.

Most run with S3 alone: what differs between the kinds of store is in test_object_store.py.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from loopback import free_ports
from support.faulty_store import WRITE, Fault
from support.waiting import eventually, eventually_true
from trainer.cluster import NO_EXPORT, SOON, SOURCE, Job, inherited, ran
from trainer.stores import SCHEMES, Store, store_with_bucket

ARGUMENTS = (
    "--task=tabular-classification",
    "--batch-size=16",
    "--epochs=2",
    "--checkpoint-every-steps=10",
    "--checkpoint-keep=2",
)
"""45 steps."""


@pytest.fixture
def store(served: Store) -> Iterator[Store]:
    """The store, which answers well when the test begins."""
    yield served
    served.proxy.recover()


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A server of S3, if the test names no other."""
    with store_with_bucket(getattr(request, "param", "s3"), "jobs") as store:
        rows = "".join(f"{row % 7},{row % 3},{row % 2}\n" for row in range(400))
        store.contents.write("data/train.csv", f"a,b,label\n{rows}".encode())
        yield store


def place(folder: Path) -> str:
    """The folder of a test in the bucket."""
    return folder.parent.name


def arguments_of(store: Store) -> tuple[str, ...]:
    return (*ARGUMENTS, f"--data-dir={store.url('data')}")


def in_bucket(folder: Path, store: Store) -> dict[str, str]:
    """The variables of a task, whose outputs are in the bucket, in the folder of the test."""
    return {
        **store.environ,
        # A request is repeated for 1 s, and not for 60.
        "DTJ_STORE_RETRY_SECONDS": "1",
        "DTJ_STORE_CACHE": str(folder / "cache"),
        "DTJ_CHECKPOINT_DIR": store.url(f"{place(folder)}/checkpoints"),
        "DTJ_LOG_DIR": store.url(f"{place(folder)}/logs"),
        "DTJ_EXPORT_DIR": store.url(f"{place(folder)}/export"),
    }


@pytest.mark.parametrize(
    ("served", "strategy", "roles", "leader"),
    [
        ("s3", "Pipeline", {"worker": 2, "evaluator": 1}, "worker-0"),
        ("gs", "ParameterServer", {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}, "chief-0"),
    ],
    indirect=["served"],
    ids=["s3-Pipeline", "gs-ParameterServer"],
)
def test_a_job_of_several_roles_works_with_a_bucket(
    folder: Path, store: Store, strategy: str, roles: dict[str, int], leader: str
) -> None:
    # Training waits for the upload of one checkpoint before it saves the next, for as long as this says.
    environ = {**in_bucket(folder, store), "DTJ_STORE_RETRY_SECONDS": "60"}
    with Job(folder, strategy=strategy, roles=roles, arguments=arguments_of(store)) as job:
        job.start(environ=environ)
        assert job[leader].wait() == 0
        assert job["evaluator-0"].wait() == 0
    found = store.contents.list_keys(place(folder))
    assert {f"{place(folder)}/checkpoints/ckpt-{step}.complete" for step in (40, 45)} <= set(found)
    assert "step 45/45  held-out: " in job["evaluator-0"].log
    assert any(key.startswith(f"{place(folder)}/logs/evaluation/events") for key in found)
    result = json.loads(store.contents.read(f"{place(folder)}/logs/result.json"))
    assert result["exportPath"] == store.url(f"{place(folder)}/export/1")
    marker = json.loads(store.contents.read(f"{place(folder)}/export/1.complete"))
    assert marker == result["export"]
    assert f"{place(folder)}/export/1/saved_model.pb" in found
    # The evaluator needs a checkpoint only until it has read it.
    assert not list((folder / "cache").glob("*/ckpt-10.index"))


def test_a_store_that_goes_away_stops_no_training_and_its_checkpoints_stay(folder: Path, store: Store) -> None:
    environ = {**in_bucket(folder, store), **NO_EXPORT}
    saved = f"{place(folder)}/checkpoints/ckpt-"
    arguments = [*arguments_of(store), "--epochs=100000"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1, "evaluator": 1}, arguments=arguments) as job:
        task, evaluator = job.start(environ=environ).replicas.values()
        eventually_true(lambda: any(key.endswith(".complete") for key in store.contents.list_keys(saved)))
        store.proxy.go_away()
        try:
            task.wait_for("the training goes on and tries again")
            evaluator.wait_for("the evaluator tries again")
            task.kill(signal.SIGTERM)
            assert task.wait(SOON) == 1
        finally:
            store.proxy.recover()
        markers = [key for key in store.contents.list_keys(saved) if key.endswith(".complete")]
        step = max(int(key.removeprefix(saved).removesuffix(".complete")) for key in markers)
        assert f"is not saved: --checkpoint-dir={store.url('')}" in task.last_words
        assert "the object store does not answer as it should" in task.last_words
        assert "\n" not in task.last_words
        job.start("worker-0", environ=environ)["worker-0"].wait_for(f"resumed: step {step} of")
        evaluator.wait_for(r"tries again[\s\S]*held-out: ")


def test_a_model_that_cannot_be_uploaded_is_exported_by_the_next_start(folder: Path, store: Store) -> None:
    environ = in_bucket(folder, store)
    result = f"{place(folder)}/logs/result.json"
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments_of(store)) as job:
        store.proxy.fail(WRITE, "export/1/saved_model.pb", Fault.FORBIDDEN, times=10_000)
        task = job.start(environ=environ)["worker-0"]
        assert task.wait() == 1
        assert task.last_words.startswith(f"the exported model is not in {environ['DTJ_EXPORT_DIR']}: ")
        assert "access denied" in task.last_words
        assert task.last_words.splitlines() == [task.last_words]
        assert "exportPath" not in json.loads(store.contents.read(result))
        assert job.start(environ=environ)["worker-0"].wait() == 0
    # The first version was claimed, and is not whole.
    markers = [key for key in store.contents.list_keys(f"{place(folder)}/export") if key.endswith(".complete")]
    assert markers == [f"{place(folder)}/export/2.complete"]
    assert json.loads(store.contents.read(result))["exportPath"].endswith("/export/2")


def test_a_result_that_does_not_reach_the_bucket_is_written_by_the_next_start(folder: Path, store: Store) -> None:
    environ = {**in_bucket(folder, store), **NO_EXPORT}
    result = f"{place(folder)}/logs/result.json"
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments_of(store)) as job:
        store.proxy.fail(WRITE, "logs/result.json", Fault.FORBIDDEN, times=10_000)
        task = job.start(environ=environ)["worker-0"]
        assert task.wait() == 1
        assert task.last_words.startswith(f"the last logs and result.json are not in {environ['DTJ_LOG_DIR']}: ")
        assert "access denied" in task.last_words
        assert task.last_words.splitlines() == [task.last_words]
        store.proxy.recover()
        assert job.start(environ=environ)["worker-0"].wait() == 0
    assert json.loads(store.contents.read(result))["steps"] == 45


def test_what_a_session_exports_is_in_the_bucket(folder: Path, store: Store) -> None:
    text = (
        "import dtj_trainer\n"
        "with dtj_trainer.session() as s:\n"
        "    (s.export_dir / '1').mkdir()\n"
        "    (s.export_dir / '1' / 'saved_model.pb').write_bytes(b'graph')\n"
        "    (s.export_dir / 'labels.txt').write_text('a')\n"
    )
    environ = {**in_bucket(folder, store), "DTJ_CHECKPOINT_DIR": "", "DTJ_LOG_DIR": ""}
    ran(folder, script=text, imported=True, environ=environ)
    names = [key.partition("/export/")[2] for key in store.contents.list_keys(place(folder))]
    assert names == ["1.complete", "1.writer", "1/saved_model.pb", "labels.txt"]


@pytest.mark.parametrize("served", SCHEMES, indirect=True)
def test_tensorboard_of_the_image_shows_the_logs_of_a_bucket(folder: Path, store: Store) -> None:
    from tensorboard.summary import Writer

    writer = Writer(str(folder / "logs"))
    writer.add_scalar("loss", 0.5, step=1)
    writer.close()
    (events,) = (folder / "logs").iterdir()
    store.contents.write(f"{place(folder)}/logs/train/{events.name}", events.read_bytes())
    (port,) = free_ports(1)
    arguments = [f"--logdir={store.url(place(folder))}/logs", f"--port={port}"]
    with (folder / "tensorboard.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, SOURCE / "start_tensorboard.py", *arguments],
            env={**inherited(), **store.environ, "TMPDIR": str(folder)}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        tags = eventually(lambda: shown(process, port))
    finally:
        process.terminate()
        process.wait()
    assert list(tags["train"]) == ["loss"]


def shown(process: subprocess.Popen[bytes], port: int) -> Any:
    """The curves that TensorBoard shows, once there are any."""
    assert process.poll() is None
    try:
        with urlopen(f"http://127.0.0.1:{port}/data/plugin/scalars/tags") as answer:
            tags = json.load(answer)
    except OSError as error:
        raise AssertionError(str(error)) from None
    assert tags
    return tags
