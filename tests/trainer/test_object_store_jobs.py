"""Jobs by real processes whose data, checkpoints, logs and exports are in a bucket."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support.faulty_store import Fault, FaultyProxy
from support.waiting import eventually, eventually_true
from trainer.cluster import NO_EXPORT, SOON, SOURCE, Job, free_ports, inherited
from trainer.s3_server import environ_of, keys, store_with_bucket

pytestmark = pytest.mark.trainer

ARGUMENTS = (
    "--task=tabular-classification",
    "--data-dir=s3://jobs/data",
    "--batch-size=16",
    "--epochs=2",
    "--checkpoint-every-steps=10",
    "--checkpoint-keep=2",
    "--store-retry-seconds=1",
)
"""45 steps. A request is repeated for 1 s, and not for 60."""


@pytest.fixture
def store(served: tuple[Any, FaultyProxy]) -> Iterator[tuple[Any, FaultyProxy]]:
    """The store, which answers well when the test begins."""
    yield served
    served[1].recover()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Any, FaultyProxy]]:
    with store_with_bucket("jobs") as (client, proxy):
        rows = "".join(f"{row % 7},{row % 3},{row % 2}\n" for row in range(400))
        client.put_object(Bucket="jobs", Key="data/train.csv", Body=f"a,b,label\n{rows}".encode())
        yield client, proxy


def place(folder: Path) -> str:
    """The folder of a test in the bucket."""
    return folder.parent.name


def in_bucket(folder: Path, proxy: FaultyProxy) -> dict[str, str]:
    """The variables of a task, whose outputs are in the bucket, in the folder of the test."""
    return {
        **environ_of(proxy),
        "DTJ_STORE_CACHE": str(folder / "cache"),
        "DTJ_CHECKPOINT_DIR": f"s3://jobs/{place(folder)}/checkpoints",
        "DTJ_LOG_DIR": f"s3://jobs/{place(folder)}/logs",
        "DTJ_EXPORT_DIR": f"s3://jobs/{place(folder)}/export",
    }


@pytest.mark.parametrize(
    ("strategy", "roles", "leader"),
    [
        ("ParameterServer", {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1}, "chief-0"),
        ("Pipeline", {"worker": 2, "evaluator": 1}, "worker-0"),
    ],
    ids=["ParameterServer", "Pipeline"],
)
def test_a_job_of_several_roles_works_with_a_bucket(
    folder: Path, store: tuple[Any, FaultyProxy], strategy: str, roles: dict[str, int], leader: str
) -> None:
    client, proxy = store
    with Job(folder, strategy=strategy, roles=roles, arguments=ARGUMENTS) as job:
        job.start(environ=in_bucket(folder, proxy))
        assert job[leader].wait() == 0
        assert job["evaluator-0"].wait() == 0
    found = keys(client, "jobs", place(folder))
    assert {f"{place(folder)}/checkpoints/ckpt-{step}.complete" for step in (40, 45)} <= set(found)
    assert "step 45/45  held-out: " in job["evaluator-0"].log
    assert any(key.startswith(f"{place(folder)}/logs/evaluation/events") for key in found)
    result = json.loads(client.get_object(Bucket="jobs", Key=f"{place(folder)}/logs/result.json")["Body"].read())
    assert result["exportPath"] == f"s3://jobs/{place(folder)}/export/1"
    marker = json.loads(client.get_object(Bucket="jobs", Key=f"{place(folder)}/export/1.complete")["Body"].read())
    assert marker == result["export"]
    assert f"{place(folder)}/export/1/saved_model.pb" in found
    # The evaluator needs a checkpoint only until it has read it.
    assert not list((folder / "cache").glob("*/ckpt-10.index"))


def test_a_store_that_goes_away_stops_no_training_and_its_checkpoints_stay(
    folder: Path, store: tuple[Any, FaultyProxy]
) -> None:
    client, proxy = store
    environ = {**in_bucket(folder, proxy), **NO_EXPORT}
    saved = f"{place(folder)}/checkpoints/ckpt-"
    arguments = [*ARGUMENTS, "--epochs=100000"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1, "evaluator": 1}, arguments=arguments) as job:
        task, evaluator = job.start(environ=environ).replicas.values()
        eventually_true(lambda: any(key.endswith(".complete") for key in keys(client, "jobs", saved)))
        proxy.go_away()
        try:
            task.wait_for("the training goes on and tries again")
            evaluator.wait_for("the evaluator tries again")
            task.kill(signal.SIGTERM)
            assert task.wait(SOON) == 1
        finally:
            proxy.recover()
        (last,) = [key for key in keys(client, "jobs", saved) if key.endswith(".complete")][-1:]
        step = int(last.removeprefix(saved).removesuffix(".complete"))
        assert "is not saved: --checkpoint-dir=s3://jobs/" in task.last_words
        assert "the object store does not answer as it should" in task.last_words
        assert "\n" not in task.last_words
        job.start("worker-0", environ=environ)["worker-0"].wait_for(f"resumed: step {step} of")
        evaluator.wait_for(r"tries again[\s\S]*held-out: ")


def test_a_model_that_cannot_be_uploaded_is_exported_by_the_next_start(
    folder: Path, store: tuple[Any, FaultyProxy]
) -> None:
    client, proxy = store
    environ = in_bucket(folder, proxy)
    result = f"{place(folder)}/logs/result.json"
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=ARGUMENTS) as job:
        proxy.fail("PUT", "export/1/saved_model.pb", Fault.FORBIDDEN, times=10_000)
        task = job.start(environ=environ)["worker-0"]
        assert task.wait() == 1
        assert task.last_words.startswith(f"the exported model is not in s3://jobs/{place(folder)}/export: ")
        assert "access denied" in task.last_words
        assert task.last_words.splitlines() == [task.last_words]
        assert "exportPath" not in json.loads(client.get_object(Bucket="jobs", Key=result)["Body"].read())
        assert job.start(environ=environ)["worker-0"].wait() == 0
    # The first version was claimed, and is not whole.
    markers = [key for key in keys(client, "jobs", f"{place(folder)}/export") if key.endswith(".complete")]
    assert markers == [f"{place(folder)}/export/2.complete"]
    assert json.loads(client.get_object(Bucket="jobs", Key=result)["Body"].read())["exportPath"].endswith("/export/2")


def test_data_that_cannot_be_read_end_a_job_with_one_line(folder: Path, store: tuple[Any, FaultyProxy]) -> None:
    _, proxy = store
    environ = {**in_bucket(folder, proxy), **NO_EXPORT, "DTJ_CHECKPOINT_DIR": "", "DTJ_LOG_DIR": ""}
    proxy.go_away()
    try:
        with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=ARGUMENTS) as job:
            task = job.start(environ=environ)["worker-0"]
            assert task.wait() == 1
    finally:
        proxy.recover()
    assert task.last_words.startswith("--data-dir=s3://jobs/data: the object store does not answer as it should (")
    assert task.last_words.splitlines() == [task.last_words]


def test_what_a_session_exports_is_in_the_bucket(folder: Path, store: tuple[Any, FaultyProxy]) -> None:
    client, proxy = store
    folder.mkdir()
    script = folder / "own.py"
    script.write_text(
        "import dtj_trainer\n"
        "with dtj_trainer.session() as s:\n"
        "    (s.export_dir / '1').mkdir()\n"
        "    (s.export_dir / '1' / 'saved_model.pb').write_bytes(b'graph')\n"
        "    (s.export_dir / 'labels.txt').write_text('a')\n"
    )
    environ = {**in_bucket(folder, proxy), "DTJ_CHECKPOINT_DIR": "", "DTJ_LOG_DIR": ""}
    arguments = [f"--script={script}", "--store-retry-seconds=1"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, imported=True) as job:
        assert job.start(arguments=arguments, environ=environ)["worker-0"].wait() == 0
    names = [key.partition("/export/")[2] for key in keys(client, "jobs", place(folder))]
    assert names == ["1.complete", "1/saved_model.pb", "labels.txt"]


def test_tensorboard_of_the_image_shows_the_logs_of_a_bucket(folder: Path, store: tuple[Any, FaultyProxy]) -> None:
    from tensorboard.summary import Writer

    client, proxy = store
    writer = Writer(str(folder / "logs"))
    writer.add_scalar("loss", 0.5, step=1)
    writer.close()
    (events,) = (folder / "logs").iterdir()
    client.upload_file(str(events), "jobs", f"{place(folder)}/logs/train/{events.name}")
    (port,) = free_ports(1)
    arguments = [f"--logdir=s3://jobs/{place(folder)}/logs", f"--port={port}"]
    with (folder / "tensorboard.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, SOURCE / "start_tensorboard.py", *arguments],
            env={**inherited(), **environ_of(proxy), "TMPDIR": str(folder)}, stdout=log, stderr=log,
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
