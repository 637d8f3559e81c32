"""Values of options and arguments that mean nothing, that are empty, too long or no text: each is one line, and code 2.

It names the option and what to write.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from dtj.cli.common.options import Duration, NamespaceName, WholeNumber
from dtj.cli.common.terminal import show_error
from dtj.cli.main import cli


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


def _refuse(command: str, option: str, value: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        cli.main([command, option, value], prog_name="dtj", standalone_mode=False)
    assert refused.value.exit_code == 2
    show_error(refused.value)


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
    _refuse(command, option, value)
    (line,) = capsys.readouterr().err.splitlines()
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
    _refuse(command, option, value)
    (line,) = capsys.readouterr().err.splitlines()
    assert f'"{value}" is not a whole number ' in line


def test_every_option_of_a_kind_is_checked_in_the_same_way() -> None:
    for command, option in OPTIONS:
        named = f"{command} {option.opts[0]}"
        assert not isinstance(option.type, click.FloatRange), named
        assert isinstance(option.type, WholeNumber) or not isinstance(option.type, click.IntRange), named
        assert isinstance(option.type, NamespaceName) or option.metavar != "NAME" or option.name in NAMES, named
        assert (option.metavar == "DURATION") == isinstance(option.type, Duration), named


NAMES = {"name", "context", "container"}
"""Options for other names than that of a namespace."""


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["rn"], "dtj: No such command 'rn'. Did you mean 'run'? (dtj -h lists the commands)"),
        (
            ["run", "--resum"],
            "dtj run: No such option '--resum'. Did you mean '--resume'? (dtj run -h shows the options)",
        ),
        (["wait"], "dtj wait: Missing argument 'NAME' (dtj wait -h shows the options)"),
        (["scale", "x"], "dtj scale: Missing option '--replicas' (dtj scale -h shows the options)"),
        (
            ["wait", "x", "--timeout=soon"],
            "dtj wait: Invalid value for '--timeout': \"soon\" is not a duration: write 30s, 5m or 1h30m "
            "(dtj wait -h shows the options)",
        ),
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], line: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        cli.main(arguments, prog_name="dtj", standalone_mode=False)
    show_error(refused.value)
    assert capsys.readouterr().err.splitlines() == [line]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["init", ""], "an argument"),
        (["run", "job.yaml", "--output-dir="], "--output-dir="),
        (["run", "job.yaml", "--trainer-python", ""], "--trainer-python"),
        (["submit", "job.yaml", "--code="], "--code="),
        (["report", "-o", "", "--run=first"], "-o"),
        (["report", "--output-dir=", "--run=first"], "--output-dir="),
        (["explain", "job.yaml", "--profiles="], "--profiles="),
        (["list", "--kubeconfig="], "--kubeconfig="),
        (["list", "-n", ""], "-n"),
        (["validate", "job.yaml", ""], "an argument"),
    ],
    ids=" ".join,
)
def test_an_empty_argument_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError) as refused:
        cli.main(arguments, standalone_mode=False)
    assert refused.value.format_message() == f"{named}: empty; give a value, or leave it out"
    assert list(tmp_path.iterdir()) == []


LONG = "é" * 128


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "job.yaml", "--trainer-python", LONG], "--trainer-python"),
        (["run", "job.yaml", f"--output-dir=here/{LONG}/x"], "--output-dir="),
        (["run", "--cluster", "job.yaml", "--code", LONG], "--code"),
        (["status", "digits", f"--kubeconfig={LONG}"], "--kubeconfig="),
        (["logs", "--run", LONG], "--run"),
        (["resume", "digits", LONG], "an argument"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_name_that_no_file_system_takes_is_refused(arguments: list[str], named: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        cli.main(arguments, standalone_mode=False)
    assert refused.value.format_message() == (
        f"{named}: has a name of 256 bytes; names of files and objects have 255 at most"
    )


@pytest.mark.parametrize("command", ["status", "logs", "resume", "suspend", "delete", "wait", "tensorboard", "report"])
@pytest.mark.parametrize("name", ["\udcff", "a\nb", "dtj/\x1b[2J"])
def test_what_no_terminal_shows_is_no_name_of_a_job(command: str, name: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        cli.main([command, name], standalone_mode=False)
    assert refused.value.format_message().endswith(
        "cannot be the name of a job: use lower-case letters, digits and '-'"
    )
