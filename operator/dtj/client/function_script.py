"""A function of a notebook or a file as a program of its own, which pods can run.

Its source is sent, and nothing else: neither bytecode (as cloudpickle would), which works with the very same Python
only, nor values of the names around it, which a notebook changes from cell to cell. So the function stands alone: it
imports and makes what it needs, and the rest are its arguments. Anything else is refused in a line that names it.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final, TypeAlias

from dtj.client.errors import CodeError

Function: TypeAlias = Callable[..., object]

_FUTURE: Final = __future__.annotations.compiler_flag


def script_of(
    function: Function, arguments: Mapping[str, object], *, code: str | os.PathLike[str] | None = None
) -> str:
    """A program that calls the function with these arguments.

    ``code`` is the directory whose files are sent along, if there is one: modules of the user's own have to be in it.
    Raises CodeError: the function does not stand alone, an argument does not fit, or an import is not sent.
    """
    own = _plain(function)
    _check_arguments(own, arguments)
    name, future = own.__name__, bool(own.__code__.co_flags & _FUTURE)
    source, node = _source(own)
    if own.__closure__ and (around := own.__code__.co_freevars):
        raise CodeError(_from_outside(name, around[0]))
    if node.decorator_list:
        raise CodeError(_decorated(name))
    if own.__dict__:
        raise CodeError(f"{name}() has attributes ({next(iter(own.__dict__))}), which are not sent: pass arguments")
    for used in _globals(source, future=future):
        if not _is_builtin(used, own.__globals__) and own.__globals__.get(used) is not own:
            raise CodeError(_from_outside(name, used))
    if not future:
        _check_annotations(node)
    _check_defaults(own, node)
    _check_imports(node, Path(code) if code is not None else None)
    _check_that_it_is_this(own, source)
    parts = [
        f'"""{name}() of a notebook or a script, sent by dtj.client.train."""',
        *(["from __future__ import annotations"] if future else []),
        source,
        f'if __name__ == "__main__":\n    {name}(**{dict(arguments)!r})',
    ]
    return "\n\n".join(parts) + "\n"


def _plain(function: Function) -> FunctionType:
    """The function, if it is one that can be sent. Raises CodeError."""
    if not isinstance(function, FunctionType):
        named = getattr(function, "__name__", None) or type(function).__name__
        raise CodeError(f"{named} is not a function: pass one that is defined with def")
    if function.__name__ == "<lambda>":
        raise CodeError("a lambda has no name and no source: pass a function that is defined with def")
    if hasattr(function, "__wrapped__"):
        raise CodeError(_decorated(function.__name__))
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


def _from_outside(name: str, used: str) -> str:
    return (
        f"{name}() uses {used}, which it does not define: import it or make it within the function, or pass it as an "
        "argument"
    )


def _decorated(name: str) -> str:
    return f"{name}() has a decorator, which is not sent: pass a function without one"


def _source(function: FunctionType) -> tuple[str, ast.FunctionDef]:
    """The source, which can stand by itself, and what Python reads. Raises CodeError."""
    name = function.__name__
    try:
        source = inspect.getsource(function.__code__).rstrip()
    except (OSError, TypeError) as error:
        raise CodeError(
            f"the source of {name} cannot be found: define it in a notebook or in a file, not at a prompt"
        ) from error
    if source[:1].isspace():  # a text of several lines in it may begin at the left margin, so it is not dedented
        source = f"if True:\n{source}"
    try:
        (statement,) = ast.parse(source).body
    except (SyntaxError, ValueError) as error:
        raise CodeError(f"the source of {name} cannot be used on its own: define it in lines of its own") from error
    node = statement.body[0] if isinstance(statement, ast.If) else statement
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        raise CodeError(f"{name}() is not what its source defines: pass the function under the name that def gives it")
    return source, node


class _Evaluated(ast.NodeTransformer):
    """Leaves out the annotations that Python does not evaluate: of variables of a function, or all of them."""

    def __init__(self, *, future: bool) -> None:
        self._future = future
        self._in_class = False

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._scope(node, in_class=True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None if self._future else node.returns
        return self._scope(node, in_class=False)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None if self._future else node.returns
        return self._scope(node, in_class=False)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None if self._future else node.annotation
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if self._future or not self._in_class:
            node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def _scope(self, node: ast.AST, *, in_class: bool) -> ast.AST:
        before, self._in_class = self._in_class, in_class
        self.generic_visit(node)
        self._in_class = before
        return node


def _globals(source: str, *, future: bool) -> Iterator[str]:
    """The names that the body takes from outside of the function, each once."""
    source = ast.unparse(_Evaluated(future=future).visit(ast.parse(source)))
    found: dict[str, None] = {}

    def visit(table: symtable.SymbolTable) -> None:
        found.update({symbol.get_name(): None for symbol in table.get_symbols() if symbol.is_global()})
        for child in table.get_children():
            visit(child)

    for child in symtable.symtable(source, "function", "exec").get_children():
        visit(child)
    yield from sorted(found)


def _is_builtin(name: str, module: Mapping[str, object]) -> bool:
    """Whether a name stands for a builtin of Python; a notebook adds some of its own, such as ``display``."""
    value = getattr(builtins, name, None)
    known = getattr(value, "__module__", "builtins") in {"builtins", "io", "_io", "_sitebuiltins"}
    return hasattr(builtins, name) and known and module.get(name, value) is value


def _check_annotations(node: ast.FunctionDef) -> None:
    """Annotations of the function itself are evaluated where it is defined. Raises CodeError."""
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    annotations = [each.annotation for each in every if each is not None] + [node.returns]
    for annotation in filter(None, annotations):
        for part in ast.walk(annotation):
            if isinstance(part, ast.Name) and not hasattr(builtins, part.id):
                raise CodeError(
                    f"{node.name}() names {part.id} in an annotation, which is not sent: write the annotation in "
                    "quotes, or leave it out"
                )


def _check_defaults(function: FunctionType, node: ast.FunctionDef) -> None:
    """Each default is a literal which still is what the function has. Raises CodeError."""
    places = [*node.args.posonlyargs, *node.args.args]
    written = node.args.defaults
    given = function.__defaults__ or ()
    by_name = dict(zip((each.arg for each in places[len(places) - len(written) :]), written, strict=True))
    values = dict(zip((each.arg for each in places[len(places) - len(given) :]), given, strict=True))
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    by_name |= {each.arg: value for each, value in named if value is not None}
    values |= function.__kwdefaults__ or {}
    for name in by_name.keys() | values.keys():
        try:
            literal = ast.literal_eval(by_name[name])
        except (KeyError, ValueError, TypeError, SyntaxError):
            same = False
        else:
            same = name in values and _same(literal, values[name])
        if not same:
            raise CodeError(
                f"the default of {name} of {function.__name__}() is no literal, or has another value by now: write the "
                "value itself, or pass it as an argument"
            )


def _same(one: object, other: object) -> bool:
    """Whether two values are equal and of the same types throughout; of code, whatever its lines are."""
    if type(one) is not type(other):
        return False
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return all(_same(getattr(one, field), getattr(other, field)) for field in _OF_CODE)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return _same(list(one.items()), list(other.items()))
    if isinstance(one, set | frozenset) and isinstance(other, set | frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, str) and isinstance(other, str) and one != other:
        return ".<locals>." in one and other.endswith(f".{one}")  # the name of a class, in a function in another one
    return repr(one) == repr(other)  # 0.0 and -0.0 are equal


_OF_CODE: Final = (
    "co_code",
    "co_consts",
    "co_names",
    "co_varnames",
    "co_cellvars",
    "co_freevars",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
)
"""What a function does."""


def _check_that_it_is_this(function: FunctionType, source: str) -> None:
    """Raises CodeError if the source has changed since the function was defined: another one would be sent."""
    flags = function.__code__.co_flags & _FUTURE
    module = compile(source, "<function>", "exec", flags=flags, dont_inherit=True)
    codes = (each for each in module.co_consts if isinstance(each, CodeType))
    found = next((each for each in codes if each.co_name == function.__code__.co_name), None)
    if found is None or not _same(found, function.__code__):
        raise CodeError(
            f"the source of {function.__name__} has changed since it was defined: run its cell, or import its file, "
            "again"
        )


def _check_imports(node: ast.FunctionDef, code: Path | None) -> None:
    """Raises CodeError if a module is a file of the user's that is not sent."""
    for part in ast.walk(node):
        if isinstance(part, ast.ImportFrom) and part.level:
            raise CodeError(f"{node.name}() imports from its own package ({'.' * part.level}): name the whole module")
        modules = [part.module or ""] if isinstance(part, ast.ImportFrom) else []
        modules += [alias.name for alias in part.names] if isinstance(part, ast.Import) else []
        for root in (module.partition(".")[0] for module in modules):
            file = _file_of(root)
            if file is None or _is_installed(file):
                continue
            if code is None:
                raise CodeError(
                    f"{node.name}() imports {root} ({file}), which no package has: send its directory with code="
                )
            if not any((code / path).exists() for path in (f"{root}.py", root)):
                raise CodeError(f"{node.name}() imports {root} ({file}), which is not in {code}: put it there")


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
