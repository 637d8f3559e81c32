"""What the tests of the commands share: a command that runs in this process."""

from __future__ import annotations

import pytest

from dtj.cli.main import cli
from support.commands import Done, Dtj


@pytest.fixture
def dtj(capsys: pytest.CaptureFixture[str]) -> Dtj:
    """Runs a command of ``dtj`` with these arguments. Raises what click would say of a wrong command line."""

    def run(*arguments: object) -> Done:
        code = cli.main([str(argument) for argument in arguments], prog_name="dtj", standalone_mode=False)
        return Done(int(code or 0), *capsys.readouterr())

    return run
