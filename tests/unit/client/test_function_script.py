"""A function as a program: what comes along, that it runs alone, and what is refused in one line."""

from __future__ import annotations

import importlib.util
import linecache
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dtj.client import CodeError
from dtj.client.function_script import script_of

pytestmark = pytest.mark.unit


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Makes a module of a text, which lies in a file as a user's script does."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(text: str, name: str = "users_script") -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, made)
        spec.loader.exec_module(made)
        return made

    yield make
    linecache.clearcache()


def notebook(*cells: str) -> dict[str, object]:
    """The names of a notebook after these cells ran, as IPython keeps them."""
    names: dict[str, object] = {"__name__": "__main__", "_ih": ["", *cells]}
    for number, cell in enumerate(cells):
        file = f"<cell {number}>"
        linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
        exec(compile(cell, file, "exec"), names)
    return names


def output(script: str, folder: Path, *, path: str = "") -> str:
    """What the program prints, run by a Python that knows nothing of this one."""
    alone = folder / "alone"
    alone.mkdir(exist_ok=True)
    (alone / "program.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=alone, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    return done.stdout


def refusal(function: object, arguments: dict[str, object] | None = None, **options: object) -> str:
    with pytest.raises(CodeError) as refused:
        script_of(function, arguments or {}, **options)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
    return str(refused.value)


WHOLE = """
    from __future__ import annotations

    import json as j
    import os.path
    import xml.etree.ElementTree
    from collections import OrderedDict as Ordered, defaultdict
    from functools import wraps

    EPOCHS = 3
    LAYERS = [{"units": 8}, ("a", None, True, 1.5)]
    UNUSED = object()

    def logged(function):
        @wraps(function)
        def wrapped(*args):
            print("called", function.__name__)
            return function(*args)
        return wrapped

    class Base:
        factor = EPOCHS

    class Model(Base):
        def predict(self, value: Undefined) -> int:
            return super().factor * value + helper(value)

    @logged
    def helper(value, default=EPOCHS):
        return value + default

    alias = helper

    def train(epochs: Undefined, name="digits", *, tags=()) -> Undefined:
        count: Undefined = 1
        \"\"\"A text
    at the left margin.\"\"\"
        print(name, epochs, list(tags), LAYERS, Model().predict(1), alias(2))
        print(j.dumps(Ordered(a=1)), os.path.join("a", "b"), dict(defaultdict(int)))
        print(xml.etree.ElementTree.fromstring("<a/>").tag)
        return [train, epochs]
"""


def test_the_program_does_what_the_function_does_with_all_that_it_uses(
    tmp_path: Path, module: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    made = module(WHOLE)
    made.train(5, tags=["x"])
    script = script_of(made.train, {"epochs": 5, "tags": ["x"]})
    assert output(script, tmp_path) == capsys.readouterr().out
    assert "UNUSED" not in script


def test_functions_and_classes_of_a_notebook_are_sent(tmp_path: Path) -> None:
    names = notebook(
        "import math\n",
        "class Layer:\n    size = 1\n",
        "class Layer:\n    size = 2\n",
        "SIZE = 4\ndef area():\n    return math.floor(Layer.size * SIZE)\n",
        "def train(scale):\n    print(scale * area())\n",
    )
    names["_ih"].append("this cell failed (")  # type: ignore[attr-defined]
    assert output(script_of(names["train"], {"scale": 3}), tmp_path) == "24\n"  # type: ignore[arg-type]


def test_a_function_within_a_function_is_sent_with_the_values_around_it(tmp_path: Path) -> None:
    units = 7

    def train() -> None:
        text = """
at the left margin"""
        print(units, text)

    assert output(script_of(train, {}), tmp_path) == "7 \nat the left margin\n"


def test_a_module_of_ones_own_has_to_be_in_the_directory_that_is_sent(
    tmp_path: Path, module: Callable[..., ModuleType]
) -> None:
    module("def load():\n    return 'loaded'\n", "own_data")
    made = module("import own_data\ndef train():\n    print(own_data.load())\n")
    assert refusal(made.train) == (
        f"train() imports own_data ({tmp_path}/own_data.py), which no package has: send its directory with code="
    )
    (tmp_path / "empty").mkdir()
    assert refusal(made.train, code=tmp_path / "empty").endswith(f"which is not in {tmp_path}/empty: put it there")
    script = script_of(made.train, {}, code=tmp_path)
    assert output(script, tmp_path, path=str(tmp_path)) == "loaded\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "train = lambda: 1",
            "a lambda has no name and no source: pass a function that is defined with def",
        ),
        ("async def train(): ...", "train() is asynchronous or a generator: pass a plain function, which calls it"),
        ("def train():\n    yield 1", "train() is asynchronous or a generator"),
        ("train = print", "print is not a function: pass one that is defined with def"),
        ("class train: ...", "train is not a function"),
        ("def train(): return missing", "train() uses missing, which is not defined: define it before, or import it"),
        (
            "data = object()\ndef train(): return data",
            "train() uses data, which cannot be sent (object): make it in the",
        ),
        ("data = float('nan')\ndef train(): return data", "train() uses data, which cannot be sent (float): "),
        ("data = [object()]\ndef train(): return data", "train() uses data, which cannot be sent (list): "),
        ("data = object()\ndef other(): return data\ndef train(): return other()", "other() uses data, which cannot"),
    ],
)
def test_what_cannot_be_sent_is_named(module: Callable[[str], ModuleType], text: str, words: str) -> None:
    assert refusal(module(text).train).startswith(words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "arguments of train(): missing a required argument: 'epochs'"),
        ({"epochs": 1, "other": 2}, "arguments of train(): got an unexpected keyword argument 'other'"),
        (
            {"epochs": object()},
            "argument epochs of train() cannot be sent (object): pass numbers, texts, lists",
        ),
        ({"epochs": float("inf")}, "argument epochs of train() cannot be sent (float): "),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    module: Callable[[str], ModuleType], arguments: dict[str, object], words: str
) -> None:
    assert refusal(module("def train(epochs): ...").train, arguments).startswith(words)


def test_one_name_for_two_things_is_refused() -> None:
    def maker(size: int) -> Callable[[], int]:
        def inner() -> int:
            return size

        return inner

    inner, size = maker(1), 2

    def train() -> int:
        return inner() + size

    assert refusal(train) == "train() uses the name size for something else than another function does: rename one"


def test_a_function_without_source_is_refused() -> None:
    names: dict[str, object] = {}
    exec("def train(): ...", names)
    assert refusal(names["train"]) == (
        "the source of train cannot be found: define it in a notebook or in a file, not at a prompt"
    )
