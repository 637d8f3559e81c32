"""Completion in shells and in kubectl, help by section, and names of jobs as an argument."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dtj.cli.common import options
from dtj.cli.common.options import JobName, Place
from dtj.cli.completion import kubectl_lines
from dtj.cli.main import Section, cli
from dtj.client import ConfigError
from support.command_line import install

Caught = pytest.CaptureFixture[str]


@click.command("follow")
@click.argument("names", nargs=-1, type=JobName())
@click.option("-n", "--namespace")
def follow(names: tuple[str, ...], namespace: str | None) -> None:
    click.echo(" ".join(names))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """A cluster with three jobs; the places that were asked for."""
    asked: list[Place] = []

    async def ask(place: Place) -> list[str]:
        asked.append(place)
        return ["digits", "digits-ps", "reviews", "tfjob/mnist"]

    monkeypatch.setattr(options, "_ask", ask)
    return asked


def completed(words: list[str]) -> list[str]:
    group = click.Group("dtj", commands=[follow])
    return list(kubectl_lines(group, words))


def test_jobs_of_the_namespace_that_is_meant_are_completed(cluster: list[Place]) -> None:
    assert completed(["follow", "-n", "team", "dig"]) == ["digits", "digits-ps", ":4"]
    assert cluster[0].namespace == "team"


def test_a_kind_before_the_name_stays_and_a_job_is_offered_once(cluster: list[Place]) -> None:
    assert completed(["follow", "dtj/r"]) == ["dtj/reviews", ":4"]
    assert completed(["follow", "digits", ""]) == ["digits-ps", "reviews", ":4"]


@pytest.mark.usefixtures("cluster")
def test_tfjobs_are_completed_where_a_command_takes_them() -> None:
    def words(*given: str) -> list[str]:
        return list(kubectl_lines(cli, ["status", *given]))

    assert words("tf") == ["tfjob/mnist", ":4"]
    assert words("tfjobs.kubeflow.org/") == ["tfjobs.kubeflow.org/mnist", ":4"]
    assert words("dtj/") == ["dtj/digits", "dtj/digits-ps", "dtj/reviews", ":4"]
    assert completed(["follow", "tf"]) == [":4"]


@pytest.mark.parametrize("trouble", [OSError("no route"), TimeoutError(), ConfigError("no kubeconfig")])
def test_where_nobody_answers_nothing_is_offered_and_nothing_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Caught, trouble: Exception
) -> None:
    async def ask(place: Place) -> list[str]:
        raise trouble

    monkeypatch.setattr(options, "_ask", ask)
    assert completed(["follow", ""]) == [":4"]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("given", "words"), [("pod/digits", "is of another kind: write NAME or dtj/NAME"), ("dtj/", "must not be empty")]
)
def test_another_kind_is_refused(given: str, words: str) -> None:
    with pytest.raises(click.BadParameter, match=words):
        follow.main([given], standalone_mode=False)


def test_kubectl_gets_commands_with_their_meaning_and_files_where_files_are_wanted() -> None:
    assert list(kubectl_lines(cli, ["val"])) == ["validate\tCheck manifests, without a cluster or with one.", ":4"]
    assert list(kubectl_lines(cli, ["validate", ""])) == [":0"]
    assert "--role" in "\n".join(kubectl_lines(cli, ["explain", "--r"]))
    assert list(kubectl_lines(cli, [])) == list(kubectl_lines(cli, [""]))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_asks_dtj(capsys: Caught, shell: str) -> None:
    assert cli.main(["completion", shell], standalone_mode=False) == 0
    script = capsys.readouterr().out
    assert f"_DTJ_COMPLETE={shell}_complete" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_command_by_the_script(tmp_path: Path) -> None:
    install(tmp_path)
    ask = (
        'source <(dtj completion bash); COMP_WORDS=(dtj va); COMP_CWORD=1; _dtj_completion dtj; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", ask],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "validate\n"


def test_help_lists_every_command_below_the_heading_of_its_section(capsys: Caught) -> None:
    cli.main(["--help"], standalone_mode=False)
    text = capsys.readouterr().out
    assert text.index("Start here:") < text.index("  init ") < text.index("On this machine:") < text.index("  run ")
    listed = cli.list_commands(click.Context(cli))
    assert listed[0] == "init", "and so in completion and in docs/cli.md"
    assert set(listed) == set(cli.commands)
    assert [section for section in Section if f"\n{section}:\n" in text] == [
        section for section in Section if section in {entry.section for entry in cli.entries.values()}
    ]


def test_the_jobs_that_have_run_on_this_machine_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in ("digits", "reviews"):
        (tmp_path / "dtj-runs" / job / "latest").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert list(kubectl_lines(cli, ["report", "--run", "d"])) == ["digits", ":4"]
    assert list(kubectl_lines(cli, ["report", "--run", "dtj-runs/"])) == [":0"]


def test_the_package_can_be_run_by_python(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dtj", "rn"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "python -m dtj: No such command 'rn'. Did you mean 'run'? (python -m dtj -h lists the commands)"
    ]
