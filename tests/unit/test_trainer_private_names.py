"""Private names of Keras, tf_keras and TensorFlow are in one package of the trainer, or in its list of names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from dtj_trainer.compat.names import USED

TRAINER = Path(__file__).resolve().parents[2] / "trainer-image" / "dtj_trainer"
PRIVATE = re.compile(r"_[a-zA-Z]\w*|__internal__")
PACKAGES = re.compile(r"tensorflow\.(python|core|compiler)\b|keras\.src\b|tf_keras\.src\b")
TAKING_NAMES = ("getattr", "hasattr", "setattr", "delattr")

ALLOWED = {
    ("*", "_exit"): "of the operating system, by os and by the C library",
    ("launcher/process.py", "_run_exitfuncs"): "of atexit: a forked process ends without them",
    ("progress.py", "_publisher"): "of a copy of this very file that a script has imported",
}
"""(file, name) -> why: none of these is of Keras, tf_keras or TensorFlow."""


def sources() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(TRAINER)): ast.parse(path.read_text())
        for path in sorted(TRAINER.rglob("*.py"))
        if path.relative_to(TRAINER).parts[0] != "compat"
    }


def own_names(tree: ast.Module) -> Iterator[str]:
    """What the classes of a module of the trainer call so: methods, fields, attributes of self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.FunctionDef):
                    yield field.name
                elif isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    yield field.target.id
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of what is taken from an object by a private name, or imported from a private package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names if PACKAGES.match(name.name))
        elif isinstance(node, ast.ImportFrom):
            if PACKAGES.match(node.module or ""):
                yield node.lineno, str(node.module)
            if (node.module or "").partition(".")[0] in ("tensorflow", "keras", "tf_keras"):
                yield from ((node.lineno, name.name) for name in node.names if PRIVATE.fullmatch(name.name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TAKING_NAMES:
            taken = node.args[1] if len(node.args) > 1 else None
            if isinstance(taken, ast.Constant) and PRIVATE.fullmatch(str(taken.value)):
                yield node.lineno, str(taken.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and PACKAGES.match(node.value):
            yield node.lineno, node.value


def listed() -> set[str]:
    """What the self-check looks for on objects of the libraries."""
    return {name for objects in USED.values() for names in objects.values() for name in names}


def test_private_names_of_libraries_are_in_compat_or_in_its_list() -> None:
    trees = sources()
    own = {name for tree in trees.values() for name in own_names(tree)}
    found = [
        f"{file}:{line}: {name}"
        for file, tree in trees.items()
        for line, name in private_names(tree)
        if name not in own | listed() and (file, name) not in ALLOWED and ("*", name) not in ALLOWED
    ]
    assert not found, (
        "private names of a library: put them behind a function of dtj_trainer.compat, or into its list, which the "
        "self-check goes through:\n" + "\n".join(found)
    )


def test_what_is_allowed_is_there() -> None:
    there = {(file, name) for file, tree in sources().items() for _, name in private_names(tree)}
    names = {name for _, name in there}
    assert not [
        (file, name) for file, name in ALLOWED if (file, name) not in there and not (file == "*" and name in names)
    ]
