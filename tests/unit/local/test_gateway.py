"""The local Gateway: objects as an API server keeps them, pods as processes, and jobs run over both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from builders import manifest
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition
from dtj.kube.errors import AlreadyExists, Conflict, NotFound
from dtj.kube.gateway import PODS, SERVICES, WatchEvent
from dtj.local.objects import Objects
from dtj.local.runner import End, LocalRun, fetch_progress
from dtj.local.view import RunView
from support.local_runs import marked_processes, new_mark, python_job, run_locally

KEY = (PODS, "default", "a")
BODY: JsonObject = {"metadata": {"name": "a", "labels": {"app": "x"}}, "spec": {"n": 1}}


# -- objects --------------------------------------------------------------------------------------------------


async def test_a_created_object_has_identity_and_versions_grow() -> None:
    objects = Objects()
    created = objects.create(KEY, BODY)
    assert dig(created, "metadata", "uid")
    assert dig(created, "metadata", "generation") == 1
    patched = objects.patch(KEY, {"status": {"phase": "Running"}})
    versions = [int(str(dig(body, "metadata", "resourceVersion"))) for body in (created, patched)]
    assert versions == sorted(set(versions))


async def test_what_is_given_and_taken_is_nobody_elses() -> None:
    objects = Objects()
    objects.create(KEY, BODY)["spec"] = "changed"
    patch: JsonObject = {"status": {"list": [1]}}
    objects.patch(KEY, patch)
    dig(patch, "status", "list").append(2)  # type: ignore[union-attr]
    assert dig(objects.get(KEY), "spec", "n") == 1
    assert dig(objects.get(KEY), "status", "list") == [1]
    assert dig(BODY, "metadata", "uid") is None


async def test_a_patch_merges_and_null_removes() -> None:
    objects = Objects()
    objects.create(KEY, BODY)
    objects.patch(KEY, {"spec": {"m": {"x": 1}}})
    assert dig(objects.patch(KEY, {"spec": {"n": None, "m": {"y": 2}}}), "spec") == {"m": {"x": 1, "y": 2}}


async def test_a_patch_that_changes_nothing_is_no_event() -> None:
    objects = Objects()
    created = objects.create(KEY, BODY)
    assert objects.patch(KEY, {"spec": {"n": 1}}) == created


async def test_names_are_unique_and_preconditions_hold() -> None:
    objects = Objects()
    created = objects.create(KEY, BODY)
    with pytest.raises(AlreadyExists):
        objects.create(KEY, BODY)
    objects.patch(KEY, {"spec": {"n": 2}})
    with pytest.raises(Conflict):
        objects.patch(KEY, {"metadata": {"resourceVersion": dig(created, "metadata", "resourceVersion")}})
    with pytest.raises(Conflict):
        objects.patch(KEY, {"metadata": {"uid": "another"}})
    objects.remove(KEY)
    for call in (lambda: objects.get(KEY), lambda: objects.remove(KEY), lambda: objects.patch(KEY, {})):
        with pytest.raises(NotFound):
            call()


async def test_lists_and_watches_show_what_the_selector_selects() -> None:
    objects = Objects()
    objects.create(KEY, BODY)
    objects.create((PODS, "default", "b"), {"metadata": {"name": "b"}})
    objects.create((SERVICES, "default", "a"), BODY)
    listing = objects.list(PODS, namespace=None, selector="app")
    assert [dig(msgspec.json.decode(item), "metadata", "name") for item in listing.items] == ["a"]
    assert objects.list(PODS, namespace="other", selector="").items == ()
    assert objects.list(PODS, namespace="default", selector="app=y").items == ()
    watch = objects.watch(PODS, namespace="default", selector="app=x", after=0)
    assert (await anext(watch)).type == "ADDED"


async def test_a_watch_reports_all_that_happened_since_and_waits_for_more() -> None:
    objects = Objects()
    objects.create(KEY, BODY)
    version = int(objects.list(PODS, namespace=None, selector="").resource_version)
    watches = [objects.watch(PODS, namespace=None, selector="", after=version) for _ in range(2)]

    async def first_two(number: int) -> list[WatchEvent]:
        return [await anext(watches[number]), await anext(watches[number])]

    waiting = [asyncio.create_task(first_two(number)) for number in range(2)]
    await asyncio.sleep(0)
    objects.patch(KEY, {"spec": {"n": 2}})
    await asyncio.sleep(0)
    objects.remove(KEY)
    for events in await asyncio.gather(*waiting):
        assert [event.type for event in events] == ["MODIFIED", "DELETED"]
        assert dig(msgspec.json.decode(events[0].object), "spec", "n") == 2


# -- jobs over processes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [42, 143])
async def test_a_program_that_leaves_because_a_person_stopped_the_run_was_stopped(tmp_path: Path, code: int) -> None:
    marks = (tmp_path / "here-0", tmp_path / "here-1")
    program = (
        "import os, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))\n"
        f"open({str(tmp_path / 'here-')!r} + os.environ['DTJ_INDEX'], 'w').close()\n"
        "time.sleep(600)"
    )

    def show(view: RunView, running: LocalRun) -> None:
        if all(mark.exists() for mark in marks):
            running.stop()

    ended = await run_locally(python_job(program), tmp_path, show=show)
    assert ended.end is End.STOPPED
    assert [replica.state for replica in ended.view.replicas] == ["Stopped", "Stopped"]


async def test_servers_are_stopped_when_the_chief_has_completed(tmp_path: Path) -> None:
    mark = new_mark()
    code = "import os, time; os.environ['DTJ_ROLE'] == 'chief' or time.sleep(600)"
    job = python_job(code, mark=mark, strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1})
    ended = await run_locally(job, tmp_path)
    assert ended.end is End.SUCCEEDED
    assert [replica.state for replica in ended.view.replicas] == ["Succeeded", "Stopped", "Stopped"]
    assert marked_processes(mark) == []


async def test_pods_that_the_clean_up_policy_keeps_end_with_the_run_all_the_same(tmp_path: Path) -> None:
    mark = new_mark()
    code = "import os, time; os.environ['DTJ_INDEX'] == '0' or time.sleep(600)"
    ended = await run_locally(python_job(code, mark=mark, runPolicy={"cleanPodPolicy": "None"}), tmp_path)
    assert ended.end is End.SUCCEEDED
    assert marked_processes(mark) == []


DEAF = (
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "open(os.environ['DTJ_CHECKPOINT_DIR'] + '/up', 'w').close()\n"
    "time.sleep(600)"
)


async def test_a_stopped_run_gives_each_process_the_grace_period_of_its_pod(tmp_path: Path) -> None:
    def show(view: RunView, running: LocalRun) -> None:
        if (tmp_path / "tiny/latest/checkpoint/up").exists():
            running.stop()

    ended = await asyncio.wait_for(
        run_locally(python_job(DEAF, roles={"worker": 1}, grace_seconds=1), tmp_path, show=show), 20
    )
    assert ended.end is End.STOPPED


async def test_a_grace_period_that_no_clock_reaches_is_as_good_as_a_day(tmp_path: Path) -> None:
    """The servers are stopped when the chief has completed."""
    code = "import os, time; os.environ['DTJ_ROLE'] == 'chief' or time.sleep(600)"
    roles = {"chief": 1, "worker": 1, "ps": 1}
    job = python_job(code, strategy="ParameterServer", roles=roles, grace_seconds=999_999_999_999)
    assert (await run_locally(job, tmp_path)).end is End.SUCCEEDED


async def test_arguments_are_in_no_log_of_the_runner(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await run_locally(python_job("'s3cret-value'", roles={"worker": 1}), tmp_path)
    (line,) = [record.getMessage() for record in caplog.records if ": process " in record.getMessage()]
    assert line.endswith(": python with 2 arguments")
    assert "s3cret-value" not in caplog.text


async def test_the_last_words_of_a_replica_are_what_it_wrote_for_that(tmp_path: Path) -> None:
    code = "import os, sys; open(os.environ['DTJ_TERMINATION_LOG'], 'w').write('the reason'); sys.exit(1)"
    ended = await run_locally(python_job(code, roles={"worker": 1}), tmp_path)
    assert ended.status.root_cause is not None
    assert ended.status.root_cause.message == "the reason"
    assert sorted(file.name for file in (tmp_path / "tiny/latest/logs").iterdir()) == ["worker-0.log"]


async def test_a_port_that_does_not_answer_or_talks_nonsense_is_no_error() -> None:
    async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await fetch_progress(port) is None
    server.close()
    await server.wait_closed()
    assert await fetch_progress(port) is None


async def test_what_only_a_cluster_has_makes_the_job_invalid_and_starts_nothing(tmp_path: Path) -> None:
    variable: JsonObject = {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    container: JsonObject = {"name": "trainer", "image": "i", "command": ["true"], "env": [variable]}
    ended = await run_locally(manifest("tiny", template={"spec": {"containers": [container]}}), tmp_path)
    assert ended.end is End.INVALID
    condition = ended.status.condition(Condition.INVALID)
    assert condition is not None
    assert condition.message.startswith("worker: spec.containers[0].env[0].valueFrom: SECRET comes from the cluster")
    assert list((tmp_path / "tiny/latest/logs").iterdir()) == []


async def test_a_log_that_cannot_be_written_fails_the_replica_with_the_reason(tmp_path: Path) -> None:
    def show(view: RunView, running: LocalRun) -> None:
        (tmp_path / "tiny/latest/logs/worker-0.log").mkdir(exist_ok=True)

    ended = await run_locally(python_job("pass", roles={"worker": 1}), tmp_path, show=show)
    assert ended.status.root_cause is not None
    assert (ended.status.root_cause.exit_code, ended.status.root_cause.reason) == (128, "StartError")
    assert "Is a directory" in ended.status.root_cause.log_tail
