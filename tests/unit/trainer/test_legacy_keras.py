"""TF_USE_LEGACY_KERAS where tf_keras is not installed: TensorFlow would say `Keras cannot be imported`."""

from pathlib import Path

import pytest

from dtj_trainer import compat
from dtj_trainer.config.script import Script
from dtj_trainer.errors import UsageError
from dtj_trainer.user_code import script_runner


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.setattr(compat, "find_spec", lambda name: None)
    monkeypatch.setattr(compat, "version_of", lambda name: "2.21.0")
    monkeypatch.setattr("sys.path", [])
    (tmp_path / "train.py").write_text("")
    return Script(name=str(tmp_path / "train.py"))


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_a_script_with_legacy_keras_is_refused_without_tf_keras(script: Script, value: str) -> None:
    with pytest.raises(UsageError) as refused:
        script_runner.prepare(script, {"TF_USE_LEGACY_KERAS": value})
    assert str(refused.value) == (
        f"TF_USE_LEGACY_KERAS={value} needs tf_keras, which is not installed; install it without its "
        "dependencies, which would replace TensorFlow: pip install --no-deps 'tf_keras==2.21.*'"
    )


@pytest.mark.parametrize("environ", [{}, {"TF_USE_LEGACY_KERAS": "0"}, {"TF_USE_LEGACY_KERAS": "yes"}], ids=str)
def test_a_script_without_it_needs_no_tf_keras(script: Script, environ: dict[str, str]) -> None:
    script_runner.prepare(script, dict(environ))
