"""A function of a notebook or a script as a program of its own, which pods can run.

Its source is sent, and not its bytecode (as cloudpickle would): bytecode works with the very same Python only, and the
image has one of its own. What the function uses from around it comes along: imports as they are written, numbers, texts
and lists of them by value, functions and classes of the same file or notebook by their source. Anything else is refused
in a line that names it.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib.util
import inspect
import os
import symtable
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final, TypeAlias

from dtj.client.errors import CodeError

Function: TypeAlias = Callable[..., object]

_MISSING: Final = object()


def script_of(
    function: Function, arguments: Mapping[str, object], *, code: str | os.PathLike[str] | None = None
) -> str:
    """A program that calls the function with these arguments.

    ``code`` is the directory whose files are sent along, if there is one: modules of the user's own have to be in it.
    Raises CodeError: the function is none that can be sent, an argument does not fit, or it uses what cannot be sent.
    """
    own = _plain(function)
    _check_arguments(own, arguments)
    program = _Program(own, Path(code) if code is not None else None)
    program.add(own)
    return program.text(arguments)


def _plain(function: Function) -> FunctionType:
    """The function, if it is one that can be sent. Raises CodeError."""
    if not isinstance(function, FunctionType):
        raise CodeError(f"{_named(function)} is not a function: pass one that is defined with def")
    if function.__name__ == "<lambda>":
        raise CodeError("a lambda has no name and no source: pass a function that is defined with def")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise CodeError(f"{function.__name__}() is asynchronous or a generator: pass a plain function, which calls it")
    return function


def _check_arguments(function: FunctionType, arguments: Mapping[str, object]) -> None:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise CodeError(f"arguments of {function.__name__}(): {error}") from error
    for name, value in arguments.items():
        if not _is_literal(value):
            raise CodeError(
                f"argument {name} of {function.__name__}() cannot be sent ({type(value).__name__}): pass numbers, "
                "texts, lists and dicts of them, or the name of a file"
            )


@dataclass
class _Program:
    """The parts of the program, in the order in which they are needed; ``sent`` are the values by name."""

    function: FunctionType
    code: Path | None
    imports: dict[str, None] = field(default_factory=dict)
    constants: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    sent: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._trees = _trees_around(self.function)
        self._written = _imports_of(self._trees, self.function.__globals__.get("__package__") or "")

    @property
    def _future(self) -> bool:
        """Whether annotations are not evaluated around the function."""
        return bool(self.function.__code__.co_flags & __future__.annotations.compiler_flag)

    def add(self, function: FunctionType | type) -> None:
        """Add the source of a function or class, after that of what it uses. Raises CodeError."""
        self.sent[function.__name__] = function
        source = self._source(function)
        around = _surroundings(function, self.function.__globals__)
        for name in _free_names(source, function.__name__, annotated=not self._future):
            self._add_name(name, around.get(name, _MISSING), user=function.__name__)
        self.sources.append(source)

    def text(self, arguments: Mapping[str, object]) -> str:
        """The program."""
        parts = [
            f'"""{self.function.__name__}() of a notebook or a script, sent by dtj.client.train."""',
            "from __future__ import annotations" if self._future else "",
            "\n".join(self.imports),
            "\n".join(self.constants),
            *self.sources,
            f'if __name__ == "__main__":\n    {self.function.__name__}(**{dict(arguments)!r})',
        ]
        return "\n\n".join(filter(None, parts)) + "\n"

    def _add_name(self, name: str, value: object, *, user: str) -> None:
        """Bring what a name stands for into the program. Raises CodeError."""
        if name in self.sent:
            if self.sent[name] is not value:
                raise CodeError(
                    f"{user}() uses the name {name} for something else than another function does: rename one"
                )
            return
        if value is _MISSING:
            if hasattr(builtins, name) or (name.startswith("__") and name.endswith("__")):
                return
            raise CodeError(
                f"{user}() uses {name}, which is not defined: define it before, or import it in the function"
            )
        self.sent[name] = value
        if name in self._written:
            for module, statement in self._written[name]:
                self._check_module(module, user)
                self.imports[statement] = None
        elif isinstance(value, ModuleType):
            self._check_module(value.__name__, user)
            self.imports[f"import {value.__name__} as {name}"] = None
        elif (own := self._own(value)) is not None:
            if own.__name__ not in self.sent or self.sent[own.__name__] is value:
                self.add(own)
            if own.__name__ != name:
                self.sources.append(f"{name} = {own.__name__}")
        elif _is_literal(value):
            self.constants.append(f"{name} = {value!r}")
        else:
            raise CodeError(
                f"{user}() uses {name}, which cannot be sent ({type(value).__name__}): make it in the function, or "
                "pass the name of a file as an argument"
            )

    def _source(self, function: FunctionType | type) -> str:
        """The source, which can stand by itself. Raises CodeError."""
        if isinstance(function, type):  # Python does not find that of a class of a notebook
            for text, tree in reversed(self._trees):
                for statement in tree.body:
                    if isinstance(statement, ast.ClassDef) and statement.name == function.__name__:
                        first = min([statement.lineno, *(each.lineno for each in statement.decorator_list)])
                        return "\n".join(text.splitlines()[first - 1 : statement.end_lineno])
        return _source(function)

    def _own(self, value: object) -> FunctionType | type | None:
        """The function or class, without its decorators, if it is defined where the function that is sent is."""
        found = inspect.unwrap(value) if callable(value) else value
        is_own = getattr(found, "__module__", None) == self.function.__module__
        return found if isinstance(found, FunctionType | type) and is_own else None

    def _check_module(self, name: str, user: str) -> None:
        """Raises CodeError if the module is a file of the user's that is not sent."""
        root = name.partition(".")[0]
        file = _file_of(root)
        if file is None or _is_installed(file):
            return
        if self.code is None:
            raise CodeError(f"{user}() imports {root} ({file}), which no package has: send its directory with code=")
        if not any((self.code / path).exists() for path in (f"{root}.py", root)):
            raise CodeError(f"{user}() imports {root} ({file}), which is not in {self.code}: put it there")


def _surroundings(function: FunctionType | type, module: Mapping[str, object]) -> dict[str, object]:
    """What the names around a function or class of ``module`` stand for."""
    if isinstance(function, type):
        methods = filter(inspect.isfunction, vars(function).values())
        return dict(module) | {name: value for each in methods for name, value in _closure(each).items()}
    return dict(module) | _closure(function)


def _closure(function: FunctionType) -> dict[str, object]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if name != "__class__" and _is_filled(cell)}


def _is_filled(cell: object) -> bool:
    return hasattr(cell, "cell_contents")  # not while the function around it has not come so far


def _source(function: FunctionType | type) -> str:
    """The source, which can stand by itself. Raises CodeError."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise CodeError(
            f"the source of {function.__name__} cannot be found: define it in a notebook or in a file, not at a prompt"
        ) from error
    if source[:1].isspace():  # a text of several lines in it may begin at the left margin, so it is not dedented
        source = f"if True:\n{source}"
    try:
        ast.parse(source)
    except SyntaxError as error:
        raise CodeError(f"the source of {function.__name__} cannot be used on its own: {error.msg}") from error
    return source.rstrip()


class _WithoutAnnotations(ast.NodeTransformer):
    """Leaves out annotations, which may name what exists for a type checker alone."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _free_names(source: str, own: str, *, annotated: bool) -> Iterator[str]:
    """The names that a source takes from outside, each once; ``annotated`` says whether annotations count. ``own`` is
    the name that it defines."""
    found: dict[str, None] = {}
    if not annotated:
        source = ast.unparse(_WithoutAnnotations().visit(ast.parse(source)))

    def visit(table: symtable.SymbolTable, *, outermost: bool) -> None:
        for symbol in table.get_symbols():
            is_outside = not (symbol.is_assigned() or symbol.is_imported()) if outermost else symbol.is_global()
            if is_outside and symbol.is_referenced() and symbol.get_name().isidentifier():
                found[symbol.get_name()] = None
        for child in table.get_children():
            visit(child, outermost=False)

    visit(symtable.symtable(source, own, "exec"), outermost=True)
    found.pop(own, None)
    yield from sorted(found)


def _imports_of(trees: Iterable[tuple[str, ast.Module]], package: str) -> dict[str, list[tuple[str, str]]]:
    """The imports of a file or notebook: of each name (module, statement)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for statement in (statement for _, tree in trees for statement in _statements(tree.body)):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                line = ast.unparse(ast.Import([alias]))
                found.setdefault(alias.asname or alias.name.partition(".")[0], []).append((alias.name, line))
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            module = importlib.util.resolve_name(module, package) if statement.level else module
            for alias in statement.names:
                line = ast.unparse(ast.ImportFrom(module, [alias], 0))
                found.setdefault(alias.asname or alias.name, []).append((module, line))
    return found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that a module runs, those within if and try too."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)


def _trees_around(function: FunctionType) -> list[tuple[str, ast.Module]]:
    """The text of the function's file, or of the cells of its notebook that ran, in order, and what Python reads."""
    found = []
    for text in _texts_around(function):
        with suppress(SyntaxError):  # a cell that failed
            found.append((text, ast.parse(text)))
    return found


def _texts_around(function: FunctionType) -> list[str]:
    cells = function.__globals__.get("_ih")  # IPython's history, in which magics are Python already
    if isinstance(cells, list):
        return [cell for cell in cells if isinstance(cell, str)]
    try:
        return [Path(inspect.getfile(function)).read_text(encoding="utf-8")]
    except (OSError, TypeError, UnicodeDecodeError):
        return []


def _file_of(module: str) -> str | None:
    """Where a module is; None if it is built in, or has no place."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if found is None or found.origin in (None, "built-in", "frozen"):
        places = list(found.submodule_search_locations or ()) if found is not None else []
        return places[0] if places else None
    return found.origin


def _is_installed(file: str) -> bool:
    """Whether the file belongs to Python or to an installed package."""
    path = Path(file)
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return True
    return any(path.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def _is_literal(value: object) -> bool:
    """Whether the value can be written into a program."""
    if isinstance(value, list | tuple | set | dict) and type(value) in (list, tuple, set, dict):
        items = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
        return all(map(_is_literal, items))
    if type(value) is float:
        return value - value == 0  # neither infinite nor NaN
    return value is None or type(value) in (bool, int, str, bytes)


def _named(value: object) -> str:
    return getattr(value, "__name__", None) or type(value).__name__
