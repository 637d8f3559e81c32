"""A function of a notebook or a file as a program of its own, which pods can run.

Its source is sent, and nothing else: neither bytecode (as cloudpickle would), which works with the very same Python
only, nor values of the names around it, which a notebook changes from cell to cell. So the function stands alone: it
imports and makes what it needs, and the rest are its arguments. Python itself is asked whether it does: the source is
compiled and defined apart from everything, and has to give the same function. What does not is refused in one line.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dis
import importlib.util
import inspect
import os
import sys
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
    source = _source(own)
    _check_alone(own, source)
    _check_imports(own, source, Path(code) if code is not None else None)
    name = own.__code__.co_name
    parts = [
        f'"""{name}() of a notebook or a script, sent by dtj.client.train."""',
        *(["from __future__ import annotations"] if own.__code__.co_flags & _FUTURE else []),
        source,
        f'if __name__ == "__main__":\n    {name}(**{dict(arguments)!r})',
    ]
    return "\n\n".join(parts) + "\n"


def _plain(function: Function) -> FunctionType:
    """The function, if it is one that can be sent. Raises CodeError."""
    if not isinstance(function, FunctionType):
        named = getattr(function, "__name__", None) or type(function).__name__
        raise CodeError(f"{named} is not a function: pass one that is defined with def")
    code = function.__code__
    if code.co_name == "<lambda>":
        raise CodeError("a lambda has no name and no source: pass a function that is defined with def")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise CodeError(f"{code.co_name}() is asynchronous or a generator: pass a plain function, which calls it")
    if hasattr(function, "__wrapped__"):
        raise CodeError(f"{function.__name__}() has a decorator, which is not sent: pass the function without it")
    if function.__dict__:
        raise CodeError(
            f"{code.co_name}() has attributes ({next(iter(function.__dict__))}), which are not sent: pass arguments"
        )
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
    """The source, which can stand by itself. Raises CodeError."""
    try:
        source = inspect.getsource(function.__code__).rstrip()
    except (OSError, TypeError) as error:
        raise CodeError(
            f"the source of {function.__code__.co_name} cannot be found: define it in a notebook or in a file, not at "
            "a prompt"
        ) from error
    # A text of several lines in it may begin at the left margin, so it is not dedented.
    return f"if True:\n{source}" if source[:1].isspace() else source


def _check_alone(own: FunctionType, source: str) -> None:
    """Raises CodeError unless the source alone defines this very function."""
    code, name = own.__code__, own.__code__.co_name
    changed = CodeError(
        f"the source of {name} has changed since it was defined: run its cell, or import its file, again"
    )
    # In the lines where it was: Python compares them, too.
    placed = "\n" * (code.co_firstlineno - 1 - source.startswith("if True:\n")) + source
    try:
        program = compile(placed, "<function>", "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise changed from error
    for used in _from_outside(program):
        is_itself = used == name and own.__globals__.get(name) is own
        if not (is_itself or _is_builtin(used, own.__globals__)):
            raise CodeError(
                f"{name}() uses {used}, which it does not define: import it or make it within the function, or pass it "
                "as an argument; an annotation may stand in quotes"
            )
    defined: dict[str, object] = {}
    exec(program, defined)  # the def statement, which asks for builtins alone
    alone = defined.get(name)
    outermost = _unqualified(code, scope=code.co_qualname).replace(co_flags=code.co_flags & ~inspect.CO_NESTED)
    if not isinstance(alone, FunctionType) or alone.__code__ != outermost:
        raise changed
    if repr((alone.__defaults__, alone.__kwdefaults__)) != repr((own.__defaults__, own.__kwdefaults__)):
        raise CodeError(
            f"the defaults of {name}() are no literals, or have other values by now: write the values themselves, or "
            "pass arguments"
        )


def _unqualified(code: CodeType, *, scope: str) -> CodeType:
    """The code as if it were defined by itself: a class or a function within ``scope`` is named after it."""
    alone = scope.rpartition(".")[2]

    def renamed(constant: object) -> object:
        if isinstance(constant, CodeType):
            return _unqualified(constant, scope=scope)
        is_within = isinstance(constant, str) and constant.startswith(f"{scope}.<locals>.")
        return alone + str(constant)[len(scope) :] if is_within else constant

    qualified = alone + code.co_qualname[len(scope) :]
    return code.replace(co_qualname=qualified, co_consts=tuple(map(renamed, code.co_consts)))


def _from_outside(code: CodeType) -> Iterator[str]:
    """The names that code takes from the module around it, or from Python."""
    found = list(dis.get_instructions(code))
    # A class body stores its names, and reads these two by itself.
    own = {"__name__", "__annotations__", *(each.argval for each in found if each.opname == "STORE_NAME")}
    for each in found:
        if "GLOBAL" in each.opname or (each.opname == "LOAD_NAME" and each.argval not in own):
            yield each.argval
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _from_outside(part)


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
            if file is not None and code is None:
                raise CodeError(
                    f"{name}() imports {root} ({file}), which no package has: send its directory with code="
                )
            if (
                file is not None
                and code is not None
                and not any((code / path).exists() for path in (f"{root}.py", root))
            ):
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
