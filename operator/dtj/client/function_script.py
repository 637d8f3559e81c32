"""A function of a notebook or a file as a program of its own, which pods can run.

Its source is sent, and nothing else: neither bytecode (as cloudpickle would), which works with the very same Python
only, nor values of the names around it, which a notebook changes from cell to cell. So the function stands alone: it
imports and makes what it needs, and the rest are its arguments. Names that it takes from elsewhere are refused in one
line.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib.util
import inspect
import os
import symtable
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tokenize import TokenError
from types import FunctionType
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
    source = _source(own)
    _check_names(own, source)
    _check_imports(own, source, Path(code) if code is not None else None)
    name = own.__code__.co_name
    parts = [
        f'"""{name}() of a notebook or a script, sent by dtj.client.train."""',
        source,
        f'if __name__ == "__main__":\n    {name}(**{dict(arguments)!r})',
    ]
    return "\n\n".join(parts) + "\n"


def _plain(function: Function) -> FunctionType:
    """The function, if it is one that can be sent. Raises CodeError."""
    if not isinstance(function, FunctionType):
        named = getattr(function, "__name__", None) or type(function).__name__
        raise CodeError(f"{named} is not a function: pass one that is defined with def")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        name = function.__code__.co_name
        raise CodeError(f"{name}() is asynchronous or a generator: pass a plain function, which calls it")
    return function


def _check_arguments(function: FunctionType, arguments: Mapping[str, object]) -> None:
    """Raises CodeError unless the function takes them, and each can be written into a program."""
    name = function.__code__.co_name
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise CodeError(f"arguments of {name}(): {error}") from error
    for key, value in arguments.items():
        try:
            literal = ast.literal_eval(repr(value)) == value
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            literal = False
        if not literal:
            raise CodeError(
                f"argument {key} of {name}() cannot be sent ({type(value).__name__}): pass numbers, texts, lists and "
                "dicts of them, or the name of a file"
            )


def _source(function: FunctionType) -> str:
    """The source as its file or its cell has it by now, which can stand by itself. Raises CodeError."""
    name = function.__code__.co_name
    try:
        source = inspect.getsource(function.__code__).rstrip()
    except (OSError, TypeError) as error:
        raise CodeError(
            f"the source of {name} cannot be found: define it in a notebook or in a file, not at a prompt"
        ) from error
    except (SyntaxError, TokenError):  # what stands there now is no Python
        source = ""
    # A text of several lines in it may begin at the left margin, so it is not dedented.
    source = f"if True:\n{source}" if source[:1].isspace() else source
    source = f"from __future__ import annotations\n\n{source}" if function.__code__.co_flags & _FUTURE else source
    try:
        defined = [part.name for part in ast.walk(ast.parse(source)) if isinstance(part, ast.FunctionDef)]
    except (SyntaxError, ValueError):
        defined = []
    if name not in defined[:1]:
        raise CodeError(
            f"the source of {name} is no def statement, or has changed since: pass a function that is defined with "
            "def, and run its cell, or import its file, again"
        )
    return source


def _check_names(own: FunctionType, source: str) -> None:
    """Raises CodeError if the source takes a name from around it."""
    name = own.__code__.co_name
    for used in _from_outside(symtable.symtable(source, "<function>", "exec"), name):
        is_itself = used == name and own.__globals__.get(name) is own
        if not (is_itself or _is_builtin(used, own.__globals__)):
            raise CodeError(
                f"{name}() uses {used}, which it does not define: import it or make it within the function, or pass it "
                "as an argument; an annotation may stand in quotes"
            )


def _from_outside(table: symtable.SymbolTable, name: str) -> Iterator[str]:
    """The names that a scope, and those within it, take from the module around ``name``, or from Python."""
    for symbol in table.get_symbols():
        is_defined_here = table.get_type() == "module" and (symbol.get_name() == name or not symbol.is_referenced())
        if symbol.is_global() and not is_defined_here:
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _from_outside(inner, name)


def _is_builtin(name: str, module: Mapping[str, object]) -> bool:
    """Whether a name stands for a builtin of Python; a notebook adds some of its own, such as ``display``."""
    value = getattr(builtins, name, None)
    known = getattr(value, "__module__", "builtins") in {"builtins", "io", "_io", "_sitebuiltins"}
    return hasattr(builtins, name) and known and module.get(name, value) is value


def _check_imports(own: FunctionType, source: str, code: Path | None) -> None:
    """Raises CodeError if a module is a file of the user's that is not sent."""
    name = own.__code__.co_name
    for part in ast.walk(ast.parse(source)):
        if isinstance(part, ast.ImportFrom) and part.level:
            raise CodeError(f"{name}() imports from its own package ({'.' * part.level}): name the whole module")
        modules = [part.module or ""] if isinstance(part, ast.ImportFrom) else []
        modules += [alias.name for alias in part.names] if isinstance(part, ast.Import) else []
        for root in (module.partition(".")[0] for module in modules):
            file = _own_file(root)
            if file is None:
                continue
            if code is None:
                raise CodeError(
                    f"{name}() imports {root} ({file}), which no package has: send its directory with code="
                )
            if not any((code / path).exists() for path in (f"{root}.py", root)):
                raise CodeError(f"{name}() imports {root} ({file}), which is not in {code}: put it there")


def _own_file(module: str) -> str | None:
    """Where a module is; None if it belongs to Python or to an installed package, or is not here."""
    try:
        found = None if module in sys.stdlib_module_names else importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    file = next((path for path in (found.origin, *(found.submodule_search_locations or ())) if path), None)
    return file if file is not None and {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts) else None
