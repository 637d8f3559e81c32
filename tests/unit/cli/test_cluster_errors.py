"""Commands for a cluster that cannot be: one line, the right exit code, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import pytest
import yaml

from builders import manifest
from dtj.cli.main import cli, main
from loopback import serving
from support.commands import Done, Dtj
from support.kubeconfigs import kubeconfig
from support.local_runs import write

NOBODY = "http://127.0.0.1:1"
"""Nothing listens on this port, and a client gets no other."""

ANY = (
    "list",
    "wait digits",
    "suspend digits",
    "resume digits",
    "scale digits --replicas 2",
    "delete digits",
    "explain digits",
)
WITH_FILE = ("submit FILE", "run --cluster FILE", "validate --server FILE")


class _Refusal(BaseHTTPRequestHandler):
    """An API server without our resource, as it speaks of paths that it does not know."""

    def do_GET(self) -> None:
        body = b"404 page not found\n"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing."""


@pytest.fixture
def without_crd(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig for a server that does not know our jobs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refusal)
    with serving(server):
        yield kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")


def words_of(command: str, folder: Path) -> list[str]:
    """The words of a command, with a file of two jobs for FILE."""
    return [str(write(folder, manifest("a"), manifest("b"))) if word == "FILE" else word for word in command.split()]


@pytest.mark.parametrize("command", [*ANY, *WITH_FILE])
def test_a_cluster_that_does_not_answer_is_one_line(dtj: Dtj, command: str, tmp_path: Path) -> None:
    done = dtj(*words_of(command, tmp_path), "--kubeconfig", kubeconfig(tmp_path, NOBODY))
    assert (done.code, done.out, done.err.count("\n")) == (4, "", 1)
    assert done.err.startswith(f"the cluster does not answer: {NOBODY}: ")


@pytest.mark.parametrize("command", [*ANY, *WITH_FILE])
def test_a_cluster_without_the_crd_is_reported_with_what_to_install(
    dtj: Dtj, command: str, without_crd: Path, tmp_path: Path
) -> None:
    words = "404 page not found: is the CRD installed? (kubectl get crd; helm install dtj charts/dtj)\n"
    assert dtj(*words_of(command, tmp_path), "--kubeconfig", without_crd) == Done(4, "", words)


def test_a_kubeconfig_that_is_not_there_is_one_line(dtj: Dtj, tmp_path: Path) -> None:
    complaint = dtj("list", "--kubeconfig", tmp_path / "none").complaint
    assert complaint == f"kubeconfig {tmp_path}/none does not exist: give one with --kubeconfig or $KUBECONFIG\n"


def test_without_a_cluster_the_runs_on_this_machine_are_named(
    dtj: Dtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dtj-runs" / "digits" / "latest").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "none")
    assert dtj("status", "digits").complaint == (
        "kubeconfig none does not exist: give one with --kubeconfig or $KUBECONFIG; for a run on this machine, use dtj "
        "report --run digits or dtj logs --run digits\n"
    )
    complaint = dtj("status", "digits", "--kubeconfig", "other").complaint
    assert "--run" not in complaint, "whoever names a cluster means it"


def test_an_unknown_condition_is_refused_before_anything_is_asked(dtj: Dtj, tmp_path: Path) -> None:
    done = dtj("wait", "digits", "--for", "done", "--kubeconfig", kubeconfig(tmp_path, NOBODY))
    assert done.complaint.startswith('"done" is not a condition of a job: wait for one of complete, ')


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["scale", "digits", "--replicas", "0"], '"0" is not a whole number of at least 1'),
        (["delete", "digits", "--timeout", "5s"], "--timeout limits --wait: give both"),
        (["status", "digits", "-o", "json"], "--output is gone: use kubectl get dtj NAME -o json, or dtj report NAME"),
        (["list", "--watch"], "--watch is gone: use kubectl get dtj --watch"),
        (["list", "-o", "json"], "-o json: -o wide is all there is here: use kubectl get dtj -o json"),
        (["run", "x.yaml", "-n", "team"], "--namespace needs --cluster"),
        (["run", "x.yaml", "--cluster", "--resume"], "--resume is for runs on this machine"),
        (["validate", "x.yaml", "-n", "a"], "--namespace, --context and --kubeconfig need --server"),
        (["explain", "x.yaml", "--context", "a"], "--context and --kubeconfig are for a job on the cluster"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(dtj: Dtj, tmp_path: Path, arguments: list[str], words: str) -> None:
    where = [] if arguments[0] in ("run", "validate") else ["--kubeconfig", kubeconfig(tmp_path, NOBODY)]
    with pytest.raises(click.UsageError) as refused:
        dtj(*arguments, *where)
    assert words in refused.value.format_message()


@pytest.mark.parametrize("command", ANY)
@pytest.mark.parametrize("fields", [{"clusters": [{"name": "c", "cluster": {"server": 1}}]}, {"contexts": None}])
def test_a_kubeconfig_that_cannot_be_used_is_bad_input_in_one_line(
    dtj: Dtj, command: str, fields: dict[str, object], tmp_path: Path
) -> None:
    file = kubeconfig(tmp_path, NOBODY)
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **fields}))
    assert dtj(*command.split(), "--kubeconfig", file).complaint


def test_an_error_of_dtj_itself_does_not_say_that_the_job_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> int:
        raise LookupError("nobody expected this")

    monkeypatch.setattr(cli, "main", broken)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 70
    assert "LookupError: nobody expected this" in capsys.readouterr().err
