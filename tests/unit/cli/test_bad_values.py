"""Values of options that mean nothing: each is one line that names the option and what to write, and exit code 2."""

from __future__ import annotations

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
