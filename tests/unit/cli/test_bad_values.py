"""Command lines that mean nothing: each is one line that names the option and what to write, and code 2."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from dtj.cli.common.options import Duration, NamespaceName, WholeNumber
from dtj.cli.common.terminal import show_error
from dtj.cli.main import cli
from support.commands import Dtj
from support.kubeconfigs import kubeconfig


def _options() -> list[tuple[str, click.Option]]:
    context = click.Context(cli)
    commands = [cli.get_command(context, name) for name in cli.list_commands(context)]
    return [
        (command.name or "", option)
        for command in commands
        if command is not None
        for option in command.params
        if isinstance(option, click.Option)
    ]


OPTIONS = _options()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, in which the commands run; no cluster answers."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    return folder


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a command line is refused."""
    with pytest.raises(click.UsageError) as raised:
        cli.main(arguments, prog_name="dtj", standalone_mode=False)
    assert raised.value.exit_code == 2
    show_error(raised.value)
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("value", ["Bad NS", "-5", "a/b", "a.b", "=", "\u00e9", "x" * 64])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (command, option.opts[0])
        for command, option in OPTIONS
        if "namespace" in (option.name or "") and not option.is_flag
    ],
)
def test_what_is_no_namespace_is_one_line(
    capsys: pytest.CaptureFixture[str], command: str, option: str, value: str
) -> None:
    line = refused([command, option, value], capsys)
    assert line.startswith(f"dtj {command}: Invalid value for ")
    assert option in line
    assert f'"{value}" is not the name of a namespace: write up to 63 lower-case letters' in line
    assert line.endswith(f"(dtj {command} -h shows the options)")


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, option.opts[0]) for command, option in OPTIONS if isinstance(option.type, WholeNumber)],
)
@pytest.mark.parametrize("value", ["many", "1.5", "-1", "0x10"])
def test_what_is_no_whole_number_is_one_line(
    capsys: pytest.CaptureFixture[str], command: str, option: str, value: str
) -> None:
    assert f'"{value}" is not a whole number ' in refused([command, option, value], capsys)


def test_every_option_of_a_kind_is_checked_in_the_same_way() -> None:
    for command, option in OPTIONS:
        named = f"{command} {option.opts[0]}"
        assert not isinstance(option.type, click.FloatRange), named
        assert isinstance(option.type, WholeNumber) or not isinstance(option.type, click.IntRange), named
        assert isinstance(option.type, NamespaceName) or option.metavar != "NAME" or option.name in NAMES, named
        assert (option.metavar == "DURATION") == isinstance(option.type, Duration), named


NAMES = {"name", "context", "container"}
"""Options for other names than that of a namespace."""

ONE_OF_BOTH = "give the name of a job on the cluster, or a run on this machine with --run"
NO_CLUSTER = "--run means a run on this machine: leave out --namespace"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run --resum", "No such option '--resum'. Did you mean '--resume'?"),
        ("run", "there is no job.yaml here: give a FILE, or type `dtj init` to write one"),
        ("run x.yaml -n team", "--namespace needs --cluster"),
        ("run --code . x.yaml", "--code needs --cluster"),
        ("run x.yaml --cluster --resume", "--resume is for runs on this machine"),
        ("wait", "Missing argument 'NAME'"),
        ("wait x --timeout=soon", "Invalid value for '--timeout': \"soon\" is not a duration: write 30s, 5m or 1h30m"),
        ("scale x", "Missing option '--replicas'"),
        ("scale digits --replicas 0", "Invalid value for '--replicas': \"0\" is not a whole number of at least 1"),
        ("delete digits --timeout 5s", "--timeout limits --wait: give both"),
        ("list -o json", "-o json: -o wide is all there is here: use kubectl get dtj -o json"),
        ("validate x.yaml -n a", "--namespace, --context and --kubeconfig need --server"),
        ("explain x.yaml --context a", "--context and --kubeconfig are for a job on the cluster"),
        ("report digits --run x", ONE_OF_BOTH),
        ("report", ONE_OF_BOTH),
        ("report --run a --run b", "--run: a report is about one run; tensorboard --logdir=dtj-runs compares the"),
        ("report --run a -n x", NO_CLUSTER),
        ("report --run a --kubeconfig x", NO_CLUSTER),
        ("tensorboard a --port 70000", "Invalid value for '--port': \"70000\" is not a whole number from 0 to 65535"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, command: str, words: str
) -> None:
    line, (name, *_) = refused(command.split(), capsys), command.split()
    assert line.startswith(f"dtj {name}: {words}")
    assert line.endswith(f" (dtj {name} -h shows the options)")
    assert list(folder.iterdir()) == []


LONG = "é" * 128
EMPTY = "empty; give a value, or leave it out"
TOO_LONG = "has a name of 256 bytes; names of files and objects have 255 at most"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("init ''", f"an argument: {EMPTY}"),
        ("run job.yaml --output-dir=", f"--output-dir=: {EMPTY}"),
        ("run job.yaml --trainer-python ''", f"--trainer-python: {EMPTY}"),
        ("submit job.yaml --code=", f"--code=: {EMPTY}"),
        ("report -o '' --run=first", f"-o: {EMPTY}"),
        ("report --output-dir= --run=first", f"--output-dir=: {EMPTY}"),
        ("explain job.yaml --profiles=", f"--profiles=: {EMPTY}"),
        ("list --kubeconfig=", f"--kubeconfig=: {EMPTY}"),
        ("list -n ''", f"-n: {EMPTY}"),
        ("validate job.yaml ''", f"an argument: {EMPTY}"),
        (f"run job.yaml --trainer-python {LONG}", f"--trainer-python: {TOO_LONG}"),
        (f"run job.yaml --output-dir=here/{LONG}/x", f"--output-dir=: {TOO_LONG}"),
        (f"run --cluster job.yaml --code {LONG}", f"--code: {TOO_LONG}"),
        (f"status digits --kubeconfig={LONG}", f"--kubeconfig=: {TOO_LONG}"),
        (f"report --run {LONG}", f"--run: {TOO_LONG}"),
        (f"resume digits {LONG}", f"an argument: {TOO_LONG}"),
    ],
)
def test_an_argument_that_is_empty_or_that_no_file_system_takes_is_refused(
    capsys: pytest.CaptureFixture[str], folder: Path, command: str, line: str
) -> None:
    assert refused(shlex.split(command), capsys) == line
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("option", ["-l {}", "-l{}", "-Al {}", "--selector {}", "--selector={}"])
def test_a_selector_of_labels_may_be_longer_than_any_name(dtj: Dtj, option: str) -> None:
    selector = f"team in ({','.join(f'team-{number}' for number in range(100))})"
    done = dtj("list", *(word.format(selector) for word in option.split()))
    assert (done.code, done.err.count("\n")) == (4, 1)
    assert done.err.startswith("the cluster does not answer")


@pytest.mark.parametrize("command", ["status", "logs", "resume", "suspend", "delete", "wait", "tensorboard", "report"])
@pytest.mark.parametrize("name", ["\udcff", "a\nb", "dtj/\x1b[2J"])
def test_what_no_terminal_shows_is_no_name_of_a_job(
    capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    assert "cannot be the name of a job: use lower-case letters, digits and '-'" in refused([command, name], capsys)


@pytest.mark.parametrize(
    "command", ["status", "logs", "resume", "suspend", "delete", "wait", "tensorboard", "report", "scale"]
)
@pytest.mark.parametrize("name", [".", "..", "dtj/.", "dtj/", "dtj/..", "%2e"])
def test_what_a_server_takes_for_all_jobs_is_no_name_of_one(
    capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    assert "name" in refused([command, name, *(["--replicas=2"] if command == "scale" else [])], capsys)
