"""What a command imports: a person who asks for help or presses Tab waits for every module."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import dtj.client
from dtj.cli.main import cli

ROOT = Path(__file__).parents[3]

LIGHT = {"click", "dtj"}
"""Packages outside the standard library that help, the version and completion may import."""

LIGHT_ROOMS = ("dtj.cli", "dtj.api.names", "dtj.api.printable", "dtj.api.strategies", "dtj.api.tfjob.names")
"""Modules of ours that they may import."""

RUN = """
import sys
before = set(sys.modules)
from dtj.cli.main import cli
{body}
import json
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(body: str) -> set[str]:
    """The modules that a fresh Python imports for a command line."""
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(body=body)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def too_heavy(modules: set[str]) -> set[str]:
    """Those that help and completion must do without."""
    foreign = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names | LIGHT}
    ours = {name for name in modules if name.startswith("dtj.") and name not in ("dtj.api", "dtj.api.tfjob")}
    return foreign | {name for name in ours if not name.startswith(LIGHT_ROOMS)}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["help"], ["version"], []])
def test_help_and_version_import_only_click_and_the_names_of_the_commands(words: list[str]) -> None:
    found = imported(f"cli.main({words!r}, standalone_mode=False)")
    assert "dtj.cli.main" in found
    assert too_heavy(found) == set()
    targets = {entry.target.partition(":")[0] for entry in cli.entries.values()}
    assert found & targets == set(), "no command is imported to be listed"


@pytest.mark.parametrize("words", [[""], ["st"], *([name, "--"] for name in cli.commands)], ids=" ".join)
def test_a_tab_imports_at_most_the_command_that_is_completed(words: list[str]) -> None:
    asked = f"from dtj.cli.completion import kubectl_lines; lines = list(kubectl_lines(cli, {words!r}))"
    found = imported(f"{asked}; assert len(lines) > 1, lines")
    assert too_heavy(found) == set()


@pytest.mark.parametrize("name", cli.commands)
def test_the_help_of_a_command_needs_no_cluster_client(name: str) -> None:
    assert too_heavy(imported(f"cli.main([{name!r}, '--help'], standalone_mode=False)")) == set()


@pytest.mark.parametrize("name", ["validate", "explain"])
def test_commands_that_check_a_manifest_import_no_cluster_client(name: str) -> None:
    found = imported(f"cli.main([{name!r}, 'examples/digits.yaml'], standalone_mode=False)")
    assert "pydantic" in found
    assert found & {"kubernetes", "aiohttp", "kopf", "asyncio"} == set()
    assert "dtj.api.crd" not in found, "the schema is read from a file, not built"


def test_the_list_of_commands_has_the_first_sentence_of_each_commands_help() -> None:
    context = click.Context(cli)
    for name, entry in cli.entries.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert inspect.cleandoc(command.help or "").partition("\n\n")[0] == entry.summary


def test_the_client_offers_every_name_that_it_lists() -> None:
    assert [name for name in dtj.client.__all__ if not hasattr(dtj.client, name)] == []
    assert not hasattr(dtj.client, "WaitCondition")


@pytest.mark.parametrize(
    ("words", "option"), [("help", "--help"), ("version", "--version"), ("help run", "run --help")]
)
def test_help_and_version_are_commands_too(words: str, option: str) -> None:
    def printed(arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(cli, arguments.split())
        return result.exit_code, result.output

    assert printed(words) == printed(option)
    assert printed(words)[0] == 0
