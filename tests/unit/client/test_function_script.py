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


NO_DEF = (
    "the source of train is no def statement, or has changed since: pass a function that is defined with def, and run "
    "its cell, or import its file, again"
)
WHOLE = """
    from __future__ import annotations

    UNUSED = object()

    def train(epochs: Undefined, name="digits", *, tags=(), rate=-0.5) -> Undefined:
        import json as j
        import os.path
        from collections import OrderedDict as Ordered

        count: Undefined = 1

        class Model:
            factor = 3

            def predict(self, value: int) -> int:
                return self.factor * value + helper(value)

        def helper(value, default=epochs):
            return value + default

        \"\"\"A text
    at the left margin.\"\"\"
        print(name, epochs, list(tags), rate, Model().predict(1), __debug__)
        print(j.dumps(Ordered(a=1)), os.path.join("a", "b"), open.__name__)
        if epochs > 5:
            return train(5)
        return [epochs]
"""


def test_the_program_does_what_the_function_does(
    tmp_path: Path, module: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    made = module(WHOLE)
    made.train(6, tags=["x"])
    script = script_of(made.train, {"epochs": 6, "tags": ["x"]})
    assert output(script, tmp_path) == capsys.readouterr().out
    assert "UNUSED" not in script


def test_a_function_of_a_notebook_is_sent_as_it_was_defined_last(tmp_path: Path) -> None:
    names = notebook("def train(scale):\n    print(scale)\n", "def train(scale: int):\n    print(2 * scale)\n")
    assert output(script_of(names["train"], {"scale": 3}), tmp_path) == "6\n"  # type: ignore[arg-type]


def test_a_function_within_a_function_is_sent(tmp_path: Path) -> None:
    def train() -> None:
        class Layer:
            units = 7

        text = """
at the left margin"""
        print(Layer.__qualname__, text)

    assert output(script_of(train, {}), tmp_path) == "train.<locals>.Layer \nat the left margin\n"


@pytest.mark.parametrize("now", ["", "def other(): ...", "x = 1", "def train(:"])
def test_a_function_that_is_no_longer_where_it_was_is_refused(module: Callable[..., ModuleType], now: str) -> None:
    made = module("def train():\n    print(1)\n")
    assert made.__file__ is not None
    Path(made.__file__).write_text(f"{now}\n")
    linecache.checkcache()
    assert refusal(made.train) == NO_DEF


def test_a_module_of_ones_own_has_to_be_in_the_directory_that_is_sent(
    tmp_path: Path, module: Callable[..., ModuleType]
) -> None:
    module("def load():\n    return 'loaded'\n", "own_data")
    made = module("def train():\n    import own_data\n    print(own_data.load())\n")
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
            "the source of <lambda> is no def statement",
        ),
        ("async def train(): ...", "train() is asynchronous or a generator: pass a plain function, which calls it"),
        ("def train():\n    yield 1", "train() is asynchronous or a generator"),
        ("train = print", "print is not a function: pass one that is defined with def"),
        ("class train: ...", "train is not a function"),
        ("def train(): return missing", "train() uses missing, which it does not define: import it or make it within"),
        ("data = 1\ndef train(): return data", "train() uses data, which it does not define"),
        ("import math\ndef train(): return math.pi", "train() uses math, which it does not define"),
        ("from math import e\ne = 10\ndef train(): return e", "train() uses e, which it does not define"),
        ("def other(): ...\ndef train(): return other()", "train() uses other, which it does not define"),
        ("def train():\n    def inner(): return data\n    return inner", "train() uses data, which it does not define"),
        (
            "def around():\n    units = 7\n    def train(): return units\n    return train\ntrain = around()",
            "train() uses units, which it does not define: import it or make it within",
        ),
        ("def train():\n    class A:\n        x: Base", "train() uses Base, which it does not define"),
        ("def train():\n    def inner(x: Base): ...", "train() uses Base, which it does not define"),
        ("def train():\n    class A(Base): ...", "train() uses Base, which it does not define"),
        ("print = repr\ndef train(): print(1)", "train() uses print, which it does not define"),
        ("def train(): return __name__", "train() uses __name__, which it does not define"),
        ("def train():\n    global count\n    count = 1", "train() uses count, which it does not define"),
        ("def kept(f): return f\n@kept\ndef train(): ...", "train() uses kept, which it does not define"),
        (
            "from functools import cache, wraps\ndef d(f):\n    @wraps(f)\n    def g(): return f()\n    return g\n"
            "@d\ndef train(): ...",
            "g() uses ",
        ),
        ("RATE = 1\ndef train(rate=RATE): ...", "train() uses RATE, which it does not define"),
        ("import os\ndef train(path: os.PathLike = None): ...", "train() uses os, which it does not define"),
        (
            "class A:\n    def train(self): ...\ntrain = A.train",
            "arguments of train(): missing a required argument: 'self'",
        ),
        ("def train():\n    from . import data", "train() imports from its own package (.)"),
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


def test_a_function_without_source_is_refused() -> None:
    names: dict[str, object] = {}
    exec("def train(): ...", names)
    assert refusal(names["train"]) == (
        "the source of train cannot be found: define it in a notebook or in a file, not at a prompt"
    )
