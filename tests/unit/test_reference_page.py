"""docs/reference.md lists everything that users may rely on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dtj.api import names

pytestmark = pytest.mark.unit

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    spec = importlib.util.spec_from_file_location("generate_reference", SCRIPTS / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_condition_is_described(generator: ModuleType) -> None:
    assert set(generator.CONDITIONS) == set(names.Condition)


def test_every_environment_variable_is_described(generator: ModuleType) -> None:
    variables = {value for name, value in vars(names.Env).items() if name.isupper()} - {names.Env.PREFIX}
    assert set(generator.VARIABLES) == variables
