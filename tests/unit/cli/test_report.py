"""``dtj report``: what is left out, what is drawn, and what it says where it cannot."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import threading
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml

from builders import at
from dtj.api.json import JsonObject, dig, fields_of, object_at
from dtj.api.names import Annotation
from dtj.api.tfjob.names import Label
from dtj.cli.main import cli
from dtj.cli.report.drawing import curves, plot, safe, short_value
from dtj.cli.report.evidence import (
    LOG_BYTES,
    LOG_LINES,
    SPEED,
    Evidence,
    Log,
    Scalar,
    replica_named,
    scalars_in,
    scalars_of,
)
from dtj.cli.report.page import render_page
from dtj.cli.report.redaction import without_secrets
from dtj.cli.report.run import gather
from dtj.cli.report.timeline import History, Look, history
from dtj.local import run_directory
from dtj.local.run_directory import RunDirectory, RunError
from dtj_launch.logs import JsonFormatter
from dtj_launch.progress import Progress
from dtj_trainer.progress_line import progress_fields, progress_line
from patience import PATIENCE_SECONDS
from support.commands import Dtj
from support.job_evidence import (
    HOSTILE,
    SECRET,
    a_job_that_failed,
    a_job_that_succeeded,
    a_job_whose_members_changed,
    job,
    metrics_file,
    moment,
    pod,
    ran,
    runs,
)
from support.played_tfjobs import tfjob

ELASTIC: JsonObject = {"maxReplicas": 2}


def evidence(**known: object) -> Evidence:
    """A job that runs, and what is known of it."""
    status: JsonObject = {"state": "Running", "attempt": 1}
    return replace(Evidence(source="here", taken_at=moment(60), job=job(status)), **known)  # type: ignore[arg-type]


def logged(text: str) -> Evidence:
    """A job whose leader printed this."""
    return evidence(scalars=scalars_of((Log("a", text),)))


# -- the timeline -----------------------------------------------------------------------------------------------


def history_of(known: Evidence) -> History:
    found = history(known)
    assert found is not None
    return found


def looks(known: Evidence) -> dict[str, list[str]]:
    return {row.name: [str(bar.look) for bar in row.bars] for row in history_of(known).rows}


def with_pods(*pods: JsonObject) -> Evidence:
    return evidence(objects={"pods": pods})


def test_pods_are_rows_with_their_nodes_and_gone_pods_are_drawn_from_their_events() -> None:
    assert looks(a_job_that_failed()) == {
        "worker-0": ["stopped"],
        "worker-0-r1": ["waiting", "stopped"],
        "worker-1-r1": ["waiting", "failed"],
    }
    assert [row.name for row in history_of(a_job_that_failed()).rows if row.where == "gone"] == ["worker-0"]
    body = pod("worker-0", runs(3, 9))
    body["spec"] = {"nodeName": "node-b", "containers": [{"name": "trainer"}]}
    assert [row.where for row in history_of(with_pods(body)).rows] == ["node-b"]


def test_a_restart_is_marked_with_its_reason() -> None:
    known = a_job_that_failed()
    words = "attempt 2: worker 0 was lost; all replicas start again from the last checkpoint"
    assert history_of(known).restarts == ((moment(70), words),)
    assert words in render_page(known).partition("Training")[0]
    assert history_of(replace(known, events=())).restarts == ((moment(70), "attempt 2"),), "from the status"


def test_a_change_of_the_members_is_marked_and_a_pod_that_does_not_train_waits() -> None:
    known = a_job_whose_members_changed()
    found = history_of(known)
    assert [at for at, _ in found.changes] == [moment(40), moment(90)]
    assert found.restarts == ()
    assert looks(known)["worker-2"] == ["waiting", "starting", "running"]
    assert looks(known)["worker-0-r1"] == ["waiting", "starting", "waiting"]
    page = render_page(known)
    marks = re.findall(r'<line class="change"[^>]*><title>([^<]*)</title>', page)
    assert set(marks) == {
        f"worker-2 joins; 3 of 3 replicas train (generation 1), at {moment(40):%H:%M:%S}",
        f"worker-0 leaves; 2 of 3 replicas train (generation 2), at {moment(90):%H:%M:%S}",
    }
    assert len(marks) == 2 * len(found.rows)
    assert "members joined or left" in page
    assert "<dt>members</dt><dd>worker 1-2 of 3 replicas (generation 2)</dd>" in page


def test_a_pod_that_has_not_joined_waits_also_before_the_first_change() -> None:
    """Only the pods know then who trains."""
    body = job({"state": "Running", "attempt": 1, "replicaStatuses": {"worker": {"desired": 2}}}, elastic=ELASTIC)
    pods = [pod(name, runs(3, 9)) for name in ("worker-0", "worker-1")]
    for each in pods:
        metadata = object_at(each, "metadata")
        metadata["annotations"] = {Annotation.WORLD: '{"generation": 0, "members": {"worker": "0"}}'}
    assert looks(evidence(job=body, objects={"pods": tuple(pods)}))["worker-1"][-1] == Look.WAITING
    assert looks(evidence(job=body, objects={"pods": tuple(pods)}))["worker-0"][-1] == Look.RUNNING


def test_a_pod_waits_starts_and_runs() -> None:
    assert looks(with_pods(pod("worker-0", runs(3, 9))))["worker-0"] == ["waiting", "starting", "running"]
    assert looks(with_pods(pod("worker-0")))["worker-0"] == ["waiting"]


def test_a_pod_that_was_made_after_now_by_the_clusters_clock_is_no_row_yet() -> None:
    late = pod("worker-1")
    late["metadata"] = {**object_at(late, "metadata"), "creationTimestamp": at(61)}
    assert looks(with_pods(pod("worker-0"), late)) == {"worker-0": ["waiting"]}


def test_a_pod_that_was_asked_to_stop_has_not_failed_as_it_has_not_to_the_planner() -> None:
    for code in (42, 143):
        assert looks(with_pods(pod("worker-0", ran(1, 39, code))))["worker-0"][-1] == Look.STOPPED
        assert looks(with_pods(pod("worker-0", ran(1, 6, code))))["worker-0"][-1] == Look.FAILED


def test_the_pods_of_a_tfjob_are_read_as_its_own_the_master_and_a_container_beside_tensorflow_too() -> None:
    pods = []
    for name in ("master", "worker"):
        body = pod(f"{name}-0", {**runs(3, 9), "conditions": []})
        labels: JsonObject = {Label.JOB_NAME: "digits", Label.REPLICA_TYPE: name, Label.REPLICA_INDEX: "0"}
        body["metadata"] = {**body["metadata"], "labels": labels}  # type: ignore[dict-item]
        body["spec"] = {"containers": [{"name": "proxy"}, {"name": "tensorflow"}]}
        status = dig(body, "status", "containerStatuses", 0)
        assert isinstance(status, dict)
        status["name"] = "tensorflow"
        pods.append(body)
    known = evidence(job=tfjob({"Master": 1, "Worker": 1}), objects={"pods": tuple(pods)})
    assert looks(replace(known, job={**known.job, "metadata": {**known.job["metadata"], "name": "digits"}})) == {
        "master-0": ["waiting", "starting", "running"],
        "worker-0": ["waiting", "starting", "running"],
    }


def test_the_end_of_a_pod_is_in_the_words_of_the_status() -> None:
    evicted: JsonObject = {**pod("worker-1"), "status": {"phase": "Failed", "reason": "Evicted"}}
    found = history_of(with_pods(pod("worker-0", ran(1, 9, 137, "OOMKilled")), evicted))
    assert {row.name: row.bars[-1].words for row in found.rows} == {
        "worker-0": "exited with code 137 (SIGKILL, OOMKilled)",
        "worker-1": "failed (Evicted)",
    }


def test_a_sidecar_that_was_injected_first_is_not_taken_for_the_container_that_trains() -> None:
    body = pod("worker-0", ran(1, 9, 0))
    body["metadata"] = {**body["metadata"], "annotations": {Annotation.MAIN_CONTAINER: "tensorflow"}}  # type: ignore[dict-item]
    body["spec"] = {"containers": [{"name": "proxy", "image": "mesh"}, {"name": "tensorflow", "image": "mine"}]}
    ended = dig(body, "status", "containerStatuses", 0, "state")
    killed: JsonObject = {"terminated": {"exitCode": 143}}
    statuses: JsonObject = {"proxy": killed, "tensorflow": ended}
    body["status"] = {"containerStatuses": [{"name": name, "state": state} for name, state in statuses.items()]}
    assert looks(with_pods(body))["worker-0"][-1] == Look.SUCCEEDED


def test_a_pod_runs_while_another_container_has_ended() -> None:
    body = pod("worker-0", runs(3, 9))
    status, main = object_at(body, "status"), dig(body, "status", "containerStatuses", 0)
    status["conditions"] = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]
    status["containerStatuses"] = [{**fields_of(main), "ready": True}]
    assert looks(with_pods(body))["worker-0"][-1] == Look.RUNNING


def test_tensorboard_which_outlives_its_job_is_no_row_and_does_not_count() -> None:
    known = a_job_that_succeeded()
    known = replace(known, objects={"pods": (*known.pods, pod("tensorboard", runs(3, 9)))}, taken_at=moment(3000))
    assert [row.name for row in history_of(known).rows] == ["worker-0", "worker-1"]
    assert "<dt>took</dt><dd>2m00s</dd>" in render_page(known)


def test_a_job_of_which_nothing_is_known_has_no_timeline() -> None:
    assert history(evidence(job={"metadata": {"name": "x"}})) is None


def test_pods_are_known_by_their_names() -> None:
    pods = ["digits-worker-0", "digits-data-worker-12-r3", "digits-2-worker-0", "digits-worker-x", "other-worker-0"]
    assert [replica_named(pod, job="digits") for pod in pods] == ["worker-0", "data-worker-12", "", "", ""]


# -- curves -----------------------------------------------------------------------------------------------------


def test_the_lines_of_the_trainer_are_understood() -> None:
    moments = [
        Progress(step=20, total_steps=225, epoch=1, metrics={"loss": 1.3626, "accuracy": 0.6}),
        Progress(step=40, metrics={"loss": 0.5, "mean_absolute_error": 41.5}, examples_per_second=12_345.0),
        Progress(step=225, total_steps=225, metrics={"loss": 0.0052, "accuracy": 0.998}, examples_per_second=843.2),
    ]
    as_json = JsonFormatter({})
    lines = [logging.makeLogRecord({"msg": progress_line(each), **progress_fields(each)}) for each in moments]
    text = "digits: worker 0\n" + "".join(f"{as_json.format(line)}\n" for line in lines)
    found = {curve.name: curve.points for curve in curves(logged(text).scalars)}
    assert [(point.step, point.number) for point in found["loss"]] == [(20, 1.363), (40, 0.5), (225, 0.0052)]
    assert [(point.step, point.number) for point in found[SPEED]] == [(40, 12_345.0), (225, 843.2)]
    assert [point.number for point in found["accuracy"]] == [0.6, 0.998]
    assert "epoch" not in found
    assert "mean_absolute_error" not in found, "one point is no curve"
    assert logged("".join(f"{line.getMessage()}\n" for line in lines)).scalars == (), "for people alone"


HOSTILE_PROGRESS = (
    '{"step": 1, "metrics": {"loss": "1.2.3"}}',
    '{"step": 2, "metrics": {"loss": "nan"}}',
    '{"step": 99999999999999999999, "metrics": {"loss": 1e3}}',
    '{"step": -1, "metrics": {"loss": 1}}',
    '{"step": 3, "metrics": {"loss": {}}}',
    '{"step": "x", "metrics": 7}',
    "[" * 100_000,
    "7",
)


def test_lines_that_only_look_like_progress_do_no_harm() -> None:
    text = "".join(f'{{"message": "x", "progress": {line}}}\n' for line in HOSTILE_PROGRESS)
    assert curves(logged(f"{text}{{}}\n{{\n").scalars) == ()
    assert curves(scalars_in(["\n".join(HOSTILE_PROGRESS)])) == ()


def test_a_curve_that_does_not_move_is_drawn_too() -> None:
    flat = tuple(Scalar("loss", step, 0.0, moment(step)) for step in (5, 5, 5))
    (curve,) = curves(flat)
    assert "polyline" in plot(curve)


def test_values_are_short() -> None:
    assert [*map(short_value, (0, 0.00312, 1.25, -3100, 0.5))] == ["0", "0.00312", "1.25", "-3.1k", "0.5"]


# -- the page ---------------------------------------------------------------------------------------------------


def test_everything_that_others_wrote_stands_for_itself_and_nothing_comes_from_elsewhere() -> None:
    known = a_job_that_failed()
    hostile_pod = pod("worker-0-r1", ran(1, 2, 1, HOSTILE))
    lines = ({"progress": {"step": step, "metrics": {HOSTILE: 1.5 / step}}} for step in (1, 2))
    hostile_log = Log(HOSTILE, "".join(json.dumps(line) + "\n" for line in lines))
    known = replace(
        known, objects={"pods": (hostile_pod,)}, logs=(hostile_log,), scalars=scalars_of((hostile_log,)), source=HOSTILE
    )
    page = render_page(known)
    assert "default-src 'none'" in page
    assert page.count(safe(HOSTILE)) >= 4
    for word in ("<script", "<img", "<link", "href=", "url(", "@import"):
        assert word not in page
    assert safe("\x1b[31mred\x1b[0m \x1b]0;title\x07a\x00b\u202ec") == "red a\ufffdb\ufffdc"


def test_the_page_says_what_went_wrong_what_is_not_here_and_holds_the_pods_without_their_values() -> None:
    page = render_page(without_secrets(a_job_that_failed()))
    assert "What went wrong" in page
    for words in ("worker-1 on node-b", "exited with code 1, UserError", "a record cannot be read", "nodes is"):
        assert words in page
    assert "nodes is forbidden: User &quot;ann&quot;" in page.partition("Not here")[2]
    for words in ("name: digits-worker-1-r1", "name: API_TOKEN", "value: (redacted)"):
        assert words in page.partition("<h2>Objects")[2]


def test_a_job_that_waits_says_why() -> None:
    waits: JsonObject = {"type": "PodsReady", "status": "False", "message": "0/3 nodes have GPUs"}
    page = render_page(evidence(job=job({"state": "Starting", "conditions": [waits]})))
    assert "<h2>Why it does not run</h2>" in page
    assert "0/3 nodes have GPUs" in page


def test_an_unreadable_status_still_gives_a_page() -> None:
    body: JsonObject = {"metadata": {"name": "x"}, "spec": {"strategy": 7}, "status": {"state": "Odd", "attempt": -1}}
    assert "Odd" in render_page(evidence(job=body))


def test_without_logs_a_report_says_how_to_get_them() -> None:
    page = render_page(replace(a_job_that_failed(), logs=()))
    assert "dtj report digits --logs includes them" in page
    assert "polyline" in page, "the curves are there"


def test_of_a_long_log_the_last_lines_are_shown(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(LOG_LINES + 1)]
    assert Log("worker-0", "".join(lines)).end().text == "".join(lines[1:])
    assert len(Log("worker-0", "x" * 2 * LOG_BYTES).end().text) == LOG_BYTES
    folder = a_run(tmp_path)
    (folder / "logs" / "worker-0.log").write_text("".join(lines))
    (log,) = gather(RunDirectory(folder)).logs
    assert log.text.startswith("line 1\n")
    assert f"last {LOG_LINES} lines" in render_page(evidence(logs=(log,)))


# -- runs on this machine ---------------------------------------------------------------------------------------


def a_run(folder: Path) -> Path:
    """The folder of a run that left what a run leaves."""
    directory = run_directory.create(folder / "dtj-runs", job="digits", now=moment(0))
    known = a_job_that_failed()
    directory.manifest.write_text(yaml.safe_dump(known.job))
    directory.objects.write_text(json.dumps({"items": [known.job, *({"kind": "Pod", **pod} for pod in known.pods)]}))
    directory.replica_metrics("worker-0").write_text(metrics_file(steps=range(20, 100, 20), begin=0))
    return directory.path


def test_a_local_run_gives_a_page(dtj: Dtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert dtj("report", "--run", folder, "-o", "x.html").out.startswith("Wrote x.html: a page, ")
    page = (tmp_path / "x.html").read_text()
    assert "1 (1 disruption)" in page
    assert "polyline" in page
    assert SECRET not in page
    assert dtj("report", "--run", "digits").code == 0
    assert stat.S_IMODE((tmp_path / "dtj-report-digits.html").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dtj-report-digits.html", "dtj-runs", "x.html"]


def test_a_command_without_a_name_names_a_run_that_is_here(
    dtj: Dtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match=r"or a run on this machine with --run, such as --run digits$"):
        dtj("report")


def test_the_name_of_a_job_is_no_path(dtj: Dtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_run(tmp_path)
    (folder / "objects.json").unlink()
    (folder / "manifest.yaml").write_text("metadata: {name: ../../x}")
    monkeypatch.chdir(tmp_path)
    assert dtj("report", "--run", folder).code == 0
    assert (tmp_path / "dtj-report-.._.._x.html").exists()


def test_a_page_can_be_written_to_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli(["report", "--run", str(a_run(tmp_path)), "-o", "-"], standalone_mode=False) == 0
    assert re.fullmatch(r"<!doctype html>.*</html>\n", capfd.readouterr().out, re.DOTALL)


def test_a_page_that_goes_into_a_pipe_leaves_the_pipe_there(dtj: Dtj, tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert dtj("report", "--run", a_run(tmp_path), "-o", pipe).code == 0
    assert pipe.is_fifo()
    reader.join(PATIENCE_SECONDS)
    assert read[0].startswith(b"<!doctype html>")


@pytest.mark.parametrize("there", [True, False], ids=["of a file", "of no file yet"])
def test_a_page_that_is_written_to_a_link_goes_to_its_target(dtj: Dtj, tmp_path: Path, there: bool) -> None:
    link, target = tmp_path / "link.html", tmp_path / "elsewhere" / "page.html"
    target.parent.mkdir()
    if there:
        target.write_text("before")
    link.symlink_to(target)
    assert dtj("report", "--run", a_run(tmp_path), "-o", link).code == 0
    assert link.is_symlink()
    assert target.read_text().startswith("<!doctype html>")
    assert list(target.parent.iterdir()) == [target]


def test_a_page_cannot_be_written_to_links_in_a_circle(dtj: Dtj, tmp_path: Path) -> None:
    link = tmp_path / "link.html"
    link.symlink_to(link)
    assert (
        ": cannot be written: Too many levels of symbolic links"
        in dtj("report", "--run", a_run(tmp_path), "-o", link).complaint
    )
    assert link.is_symlink()


def test_a_run_that_goes_on_or_was_killed_gives_what_there_is(tmp_path: Path) -> None:
    folder = a_run(tmp_path)
    (folder / "objects.json").unlink()
    known = gather(RunDirectory(folder))
    assert [item.what for item in known.unread] == ["status, pods and events"]
    assert len(curves(known.scalars)) == 3
    (folder / "objects.json").write_text("{")
    assert gather(RunDirectory(folder)).unread[0].why.startswith("objects.json: ")


NOWHERE = (
    "--run nowhere: neither the folder of a run nor the name of a job with a run here: in dtj-runs there are digits"
)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("report --run nowhere", NOWHERE),
        ("report --run digits -o no/x.html", "--output: no/x.html: cannot be written: No such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    dtj: Dtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, words: str
) -> None:
    a_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert dtj(*command.split()).complaint.startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: b: c", "line 1: is not YAML", id="syntax"),
        pytest.param("a: 2024-13-45", "is not YAML", id="no date"),
        pytest.param("[" * 100_000, "is not YAML", id="deep"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_reported(tmp_path: Path, text: str, words: str) -> None:
    folder = a_run(tmp_path)
    (folder / "manifest.yaml").write_text(text)
    with pytest.raises(RunError, match=rf"^--run: .*manifest.yaml: {words}"):
        gather(RunDirectory(folder))
