"""`scripts/check_libraries.py`: the libraries that are installed fit, and one that does not is named in one line."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

from trainer.cluster import DEADLINE, inherited

RENAMED = """
import sys
import keras
del keras.layers.Layer.{name}
import check_libraries
sys.exit(check_libraries.main())
"""

CALLED = """
import json, sys, threading
called = set()

def note(frame, event, _):
    if event == "call":
        called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

import check_libraries
threading.setprofile(note)
sys.setprofile(note)
try:
    check_libraries.main()
finally:
    sys.setprofile(None)
    print(json.dumps([list(one) for one in called]))
"""
"""Runs the checks, and prints which functions it called."""
NEED_A_CLUSTER = {
    "configure_coordination", "wait_at_barrier", "set_key_value", "get_key_value", "forget_coordinator_after",
}  # fmt: skip
"""What only a coordination service answers: `check_coordination` and `check_keep_alive` try their names."""
ROOT = Path(__file__).resolve().parents[2]
COMPAT = ROOT / "trainer-image" / "dtj_trainer" / "compat"
SCRIPTS = ROOT / "scripts"


def public_functions(path: Path) -> set[str]:
    found = ast.parse(path.read_text()).body
    return {one.name for one in found if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")}


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = inherited()
    env["PYTHONPATH"] += os.pathsep + str(SCRIPTS)
    return subprocess.run(
        [sys.executable, *arguments],
        env=env, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip


def test_the_installed_libraries_fit(tmp_path: Path) -> None:
    ended = python(str(SCRIPTS / "check_libraries.py"), folder=tmp_path)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.startswith("libraries: ")
    assert ended.stdout.count("\n") == 1


def test_a_name_that_is_gone_is_one_line_with_the_version(tmp_path: Path) -> None:
    ended = python("-c", RENAMED.format(name="_flatten_layers"), folder=tmp_path)
    assert ended.returncode == 1
    assert all(line.startswith("libraries: ") for line in ended.stdout.splitlines()), ended.stdout
    assert "_flatten_layers" in ended.stdout


def test_every_function_around_a_private_name_is_tried(tmp_path: Path) -> None:
    ended = python("-c", CALLED, folder=tmp_path)
    called = {(Path(file).name, name) for file, name in json.loads(ended.stdout.splitlines()[-1]) if "compat" in file}
    # Those of `lean` are called in processes of their own, without the rest of TensorFlow.
    modules = [path for path in COMPAT.glob("*.py") if path.stem not in ("__init__", "lean")]
    untried = [
        f"{path.name}: {name}"
        for path in modules
        for name in sorted(public_functions(path) - NEED_A_CLUSTER)
        if (path.name, name) not in called
    ]
    assert not untried
    assert {(path.name) for path in modules} <= {file for file, _ in called}
