"""Options of the launcher that are empty, as that of a shell variable which is not set: each is one line."""

from __future__ import annotations

import pytest

from dtj_launch.errors import UsageError
from dtj_launch.options import read


@pytest.mark.parametrize("name", ["module", "preload", "check", "map", "grace", "log-format", "log-level"])
@pytest.mark.parametrize("words", ["=", ""])
def test_an_empty_option_is_refused(name: str, words: str) -> None:
    argv = [f"--{name}="] if words else [f"--{name}", ""]
    with pytest.raises(UsageError) as refused:
        read([*argv, "--", "true"], {})
    assert str(refused.value) == f"{argv[0]}: empty; give a value, or leave it out"


def test_an_empty_argument_before_the_command_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^an argument: empty"):
        read(["", "--", "true"], {})


def test_the_arguments_of_the_program_may_be_empty() -> None:
    assert read(["--", "program", "", "--name="], {}).command == ("program", "", "--name=")
