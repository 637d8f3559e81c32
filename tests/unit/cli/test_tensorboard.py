"""``dtj tensorboard``: what it says where there is nothing to show, and runs on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from builders import CLAIM_TEMPLATE, NOW, job
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.status import JobStatus
from dtj.cli.tensorboard.show import problem_of, reason_to_wait, trouble_of
from dtj.kube.observed import pod_from
from dtj.kube.records import PodRecord, pod_from_object
from dtj.local import curves, run_directory
from dtj.local.run_directory import RunError
from dtj.local.trainer import NoTrainer
from patience import PATIENCE_SECONDS
from support.waiting import eventually_true

CLAIM: JsonObject = {"claimTemplate": CLAIM_TEMPLATE}


def shown(**spec: object) -> Job:
    return job(checkpoint=CLAIM, **{"tensorBoard": {}, **spec})  # type: ignore[arg-type]


def ended(ago: timedelta, **spec: object) -> Job:
    status = JobStatus.from_object(
        {
            "state": "Succeeded",
            "readyTime": "2026-01-02T03:00:00Z",
            "completionTime": (NOW - ago).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "conditions": [{"type": "Complete", "status": "True"}],
        }
    )
    return replace(shown(**spec), status=status)


def waiting_pod(waiting: JsonObject) -> PodRecord:
    status: JsonObject = {"name": "tensorboard", "state": {"waiting": waiting}}
    spec: JsonObject = {"containers": [{"name": "tensorboard"}]}
    metadata: JsonObject = {"name": "digits-tensorboard"}
    return pod_from_object({"metadata": metadata, "spec": spec, "status": {"containerStatuses": [status]}})


class TestWhyThereIsNone:
    def test_it_is_not_asked_for(self) -> None:
        answer = problem_of(job(checkpoint=CLAIM), now=NOW)
        assert answer == (
            "digits has no TensorBoard: set spec.tensorBoard: kubectl patch dtj/digits --type=merge -p "
            '\'{"spec":{"tensorBoard":{}}}\''
        )

    def test_it_is_not_asked_for_and_could_not_be(self) -> None:
        answer = str(problem_of(job(), now=NOW))
        assert answer.startswith("digits has no TensorBoard (spec.tensorBoard), and can have none: TensorBoard reads")
        assert "set checkpoint.claimTemplate" in answer

    def test_the_job_ended_long_ago(self) -> None:
        assert problem_of(ended(timedelta(minutes=59)), now=NOW) is None
        answer = str(problem_of(ended(timedelta(hours=2)), now=NOW))
        assert answer.startswith("digits ended 2h00m ago, and spec.tensorBoard.ttlSeconds is 3600")
        assert '{"spec":{"tensorBoard":{"ttlSeconds":18000}}}' in answer

    def test_the_job_is_suspended(self) -> None:
        answer = problem_of(shown(runPolicy={"suspend": True}), now=NOW)
        assert answer == "digits is suspended: TensorBoard starts again when the job resumes (runPolicy.suspend: false)"

    def test_a_job_that_is_about_to_run_is_waited_for(self) -> None:
        assert problem_of(shown(), now=NOW) is None
        assert reason_to_wait(shown(), None) == "digits is new: its TensorBoard starts when all its pods run"
        assert (
            reason_to_wait(ended(timedelta(0)), None) == "digits is Succeeded: its TensorBoard is about to be created"
        )

    @pytest.mark.parametrize(
        ("waiting", "words"),
        [
            ({"reason": "ErrImagePull", "message": "no such\nimage"}, "ImagePullFailed: no such image"),
            (
                {"reason": "RunContainerError", "message": 'exec: "tensorboard": executable file not found in $PATH'},
                'ContainerConfigError: exec: "tensorboard": executable file not found',
            ),
            ({"reason": "CrashLoopBackOff", "message": "back-off 10s"}, "it ends again and again"),
        ],
        ids=["image", "command", "crashes"],
    )
    def test_its_pod_cannot_start(self, waiting: JsonObject, words: str) -> None:
        answer = str(trouble_of(waiting_pod(waiting)))
        assert answer.startswith(words)
        assert "set spec.tensorBoard.image" in answer

    def test_a_pod_that_is_being_made_is_no_trouble(self) -> None:
        creating = waiting_pod({"reason": "ContainerCreating"})
        assert trouble_of(creating) is None
        assert reason_to_wait(shown(), pod_from(creating)) == "TensorBoard is starting"

    def test_a_pod_that_finds_no_node_is_waited_for(self) -> None:
        why: JsonObject = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
        unplaced = pod_from_object({"metadata": {"name": "digits-tensorboard"}, "status": {"conditions": [why]}})
        assert trouble_of(unplaced) is None
        assert reason_to_wait(shown(), pod_from(unplaced)) == "TensorBoard finds no node: 0/3 nodes"


def logs_of(run: str, runs: Path) -> Path:
    return run_directory.find(run, runs).tensorboard


class TestOnThisMachine:
    @pytest.fixture
    def runs(self, tmp_path: Path) -> Path:
        for when in ("20260101-000000", "20260102-000000"):
            (tmp_path / "digits" / when / "tensorboard").mkdir(parents=True)
        (tmp_path / "digits" / "latest").symlink_to("20260102-000000")
        return tmp_path

    def test_a_run_is_found_by_its_folder_and_by_its_jobs_name(self, runs: Path) -> None:
        newest = runs / "digits" / "latest" / "tensorboard"
        assert logs_of("digits", runs) == newest
        assert logs_of(str(runs / "digits"), Path("elsewhere")) == newest
        older = runs / "digits" / "20260101-000000"
        assert logs_of(str(older), runs) == older / "tensorboard"

    def test_several_runs_have_their_names(self, runs: Path) -> None:
        older = str(runs / "digits" / "20260101-000000")
        folders = [logs_of(run, runs) for run in ("digits", older, "digits")]
        assert curves.log_option(folders) == (
            f"--logdir_spec=digits/20260102-000000:{runs}/digits/20260102-000000/tensorboard,"
            f"digits/20260101-000000:{older}/tensorboard"
        )
        assert curves.log_option(folders[:1]) == f"--logdir={runs}/digits/20260102-000000/tensorboard"
        with pytest.raises(RunError, match="a path with a comma: /a,b/c"):
            curves.log_option([*folders, Path("/a,b/c/tensorboard")])

    def test_it_serves_until_it_is_asked_to_end(self, runs: Path, tmp_path: Path) -> None:
        program = _program(tmp_path, SERVES)
        with curves.served(program, "--logdir=here", port=0, timeout=PATIENCE_SECONDS) as server:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=PATIENCE_SECONDS) as reply:
                assert reply.read().decode() == "--logdir=here"
            process = server.process
        assert process.returncode is not None

    def test_one_that_ends_at_once_is_reported_with_its_last_words(self, runs: Path, tmp_path: Path) -> None:
        program = _program(tmp_path, "import sys; print('oh', file=sys.stderr); sys.exit('no such flower')")
        with (
            pytest.raises(curves.NotServing, match="TensorBoard ended with code 1: no such flower"),
            curves.served(program, "--logdir=here", port=0, timeout=PATIENCE_SECONDS),
        ):
            pass

    def test_one_that_never_answers_is_given_up(self, runs: Path, tmp_path: Path) -> None:
        program = _program(tmp_path, "import time; time.sleep(60)")
        with (
            pytest.raises(curves.NotServing, match="did not answer on port"),
            curves.served(program, "--logdir=here", port=0, timeout=0.2),
        ):
            pass

    @pytest.mark.parametrize(
        ("number", "answers"),
        [(signal.SIGTERM, True), (signal.SIGTERM, False), (signal.SIGHUP, True)],
        ids=["SIGTERM while it serves", "SIGTERM while it starts", "SIGHUP while it serves"],
    )
    def test_a_signal_ends_it_with_its_tensorboard(
        self, runs: Path, tmp_path: Path, number: signal.Signals, answers: bool
    ) -> None:
        started = tmp_path / "started"
        script = f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid()))\n"
        script += SERVES if answers else "time.sleep(600)"
        program = tmp_path / "bin" / "tensorboard"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\n{script}")
        program.chmod(0o755)
        words = ["tensorboard", "--run=digits", f"--output-dir={runs}", "--port=0", "--no-browser"]
        command = subprocess.Popen(
            [sys.executable, "-m", "dtj.cli.main", *words],
            env={**os.environ, "DTJ_TRAINER_PYTHON": "/none", "PATH": f"{program.parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        with command:
            assert command.stdout is not None
            if answers:
                assert command.stdout.readline().startswith("TensorBoard of digits: http://127.0.0.1:")
            eventually_true(lambda: started.exists() and started.read_text() != "")
            command.send_signal(number)
            assert command.stdout.read() == ""
            assert command.wait() == 128 + number
        assert not Path("/proc", started.read_text()).exists()

    def test_without_a_tensorboard_it_says_how_to_get_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(curves, "find_trainer", _no_trainer)
        with pytest.raises(RunError, match="nor on the PATH: type `make trainer` in the checkout"):
            curves.find_tensorboard({"PATH": "/nowhere"})


def _no_trainer(explicit: str | None, environ: object) -> None:
    raise NoTrainer("none")


def _program(folder: Path, text: str) -> tuple[str, ...]:
    script = folder / "tensorboard.py"
    script.write_text(text)
    return (sys.executable, os.fspath(script))


SERVES = """
import http.server, sys
logdir, port = sys.argv[1], int(sys.argv[2].partition("=")[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(logdir.encode())
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
