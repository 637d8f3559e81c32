"""Commands for a cluster that cannot be: one line, the right exit code, no traceback; and commands to type next."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import yaml

from builders import manifest
from dtj.cli.common.connection import commands_in, next_command
from dtj.cli.common.terminal import Exit
from dtj.cli.main import cli, main
from dtj.cli.steer import each
from dtj.client import WaitTimeout
from support.commands import Done, Dtj
from support.hostile_server import hostile_server
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
    "logs digits",
    "tensorboard digits",
)
WITH_FILE = ("submit FILE", "run --cluster FILE", "validate --server FILE")


def words_of(command: str, folder: Path) -> list[str]:
    """The words of a command, with a file of two jobs for FILE."""
    return [str(write(folder, manifest("a"), manifest("b"))) if word == "FILE" else word for word in command.split()]


@pytest.mark.parametrize("command", [*ANY, *WITH_FILE])
def test_a_cluster_that_does_not_answer_is_one_line(dtj: Dtj, command: str, tmp_path: Path) -> None:
    done = dtj(*words_of(command, tmp_path), "--kubeconfig", kubeconfig(tmp_path, NOBODY))
    assert (done.code, done.out, done.err.count("\n")) == (4, "", 1)
    assert done.err.startswith(f"the cluster does not answer: {NOBODY}: ")


@pytest.mark.parametrize("command", [*ANY, *WITH_FILE])
def test_a_cluster_without_the_crd_is_reported_with_what_to_install(dtj: Dtj, command: str, tmp_path: Path) -> None:
    words = "404 page not found: is the CRD installed? (kubectl get crd; helm install dtj charts/dtj)\n"
    with hostile_server("lacks") as server:
        assert dtj(*words_of(command, tmp_path), "--kubeconfig", kubeconfig(tmp_path, server)) == Done(4, "", words)


@pytest.mark.parametrize("command", ["list", "scale digits --replicas 2", "logs digits", "submit FILE"])
def test_a_redirect_is_not_followed_but_named(dtj: Dtj, command: str, tmp_path: Path) -> None:
    with hostile_server("redirects") as server:
        done = dtj(*words_of(command, tmp_path), "--kubeconfig", kubeconfig(tmp_path, server))
    assert (done.code, done.out, done.err.count("\n")) == (4, "", 1)
    assert done.err.startswith(f"the cluster does not answer: {server}/apis/")
    assert done.err.endswith(
        ": redirected to https://login.example.com/start (HTTP status 302): log in to the proxy that is in between, or "
        "name the address of the API server itself\n"
    )


def test_a_kubeconfig_that_is_not_there_is_one_line_which_names_the_runs_on_this_machine(
    dtj: Dtj, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dtj-runs" / "digits" / "latest").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "none")
    assert dtj("status", "digits").complaint == (
        "kubeconfig none does not exist: give one with --kubeconfig or $KUBECONFIG; for a run on this machine, use dtj "
        "report --run digits\n"
    )
    complaint = dtj("status", "digits", "--kubeconfig", "other").complaint
    assert complaint == "kubeconfig other does not exist: give one with --kubeconfig or $KUBECONFIG\n", "it is meant"


def test_an_unknown_condition_is_refused_before_anything_is_asked(dtj: Dtj, tmp_path: Path) -> None:
    done = dtj("wait", "digits", "--for", "done", "--kubeconfig", kubeconfig(tmp_path, NOBODY))
    assert done.complaint.startswith('"done" is not a condition of a job: wait for one of complete, ')


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


@pytest.mark.parametrize(
    ("given", "namespace", "printed"),
    [
        (None, "default", "dtj delete digits"),
        (None, "team-a", "dtj delete digits -n team-a"),
        ("team-a", "team-a", "dtj delete digits -n team-a"),
    ],
)
def test_the_namespace_of_a_job_is_named_where_it_is_not_the_usual_one(
    given: str | None, namespace: str, printed: str
) -> None:
    with click.Context(click.Command("submit"), info_name="dtj") as context:
        context.params = {"namespace": given}
        assert commands_in(namespace, usual="default")(("dtj", "delete", "digits")) == printed


def test_a_command_of_kubectl_has_the_options_that_were_given() -> None:
    with click.Context(click.Command("tensorboard"), info_name="dtj") as context:
        context.params = {"namespace": "default", "context": "far", "kubeconfig": None}
        assert next_command(("kubectl", "logs", "a")) == "kubectl logs a -n default --context far"


async def test_a_job_that_takes_too_long_keeps_nothing_from_the_next_one(capsys: pytest.CaptureFixture[str]) -> None:
    done = []

    async def suspend(name: str) -> None:
        done.append(name)
        if name == "a":
            raise WaitTimeout("a: it still stops", job=None)

    assert await each(("a", "b"), suspend) == Exit.TIMEOUT
    assert (done, capsys.readouterr().err) == (["a", "b"], "a: it still stops\n")
