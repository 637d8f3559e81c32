"""docs/reference.md lists everything that users may rely on."""

from __future__ import annotations

import generate_reference

from dtj.api import names


def test_every_condition_is_described() -> None:
    assert set(generate_reference.CONDITIONS) == set(names.Condition)


def test_every_environment_variable_is_described() -> None:
    variables = {value for name, value in vars(names.Env).items() if name.isupper()} - {names.Env.PREFIX}
    assert set(generate_reference.VARIABLES) == variables
