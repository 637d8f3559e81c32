"""Private names of Keras, tf_keras and TensorFlow are in one package of the trainer, each behind a function.

Or in the one whose functions take the place of those of Keras.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TRAINER = Path(__file__).resolve().parents[3] / "trainer-image"
PRIVATE = re.compile(r"_[a-zA-Z]\w*|__internal__")
PACKAGES = re.compile(r"tensorflow\.(python|core|compiler)\b|keras\.src\b|tf_keras\.src\b")

ALLOWED = {
    ("*", "_exit"): "of the operating system, by os and by the C library",
    ("dtj_launch/child.py", "_run_exitfuncs"): "of atexit: a forked process ends without them",
    ("dtj_launch/child.py", "_shutdown"): "of threading: as multiprocessing ends its forked processes",
}
"""(file, name) -> why: none of these is of Keras, tf_keras or TensorFlow."""


def sources() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(TRAINER)): ast.parse(path.read_text())
        for path in sorted(TRAINER.rglob("*.py"))
        if path.relative_to(TRAINER).parts[:2] not in {("dtj_trainer", "compat"), ("dtj_trainer", "keras_fit")}
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


def module_names(tree: ast.Module) -> Iterator[str]:
    """What a module of the trainer calls so at its top: functions, classes, constants."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def private_names(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """(line, name, whether of self) of attributes and texts that are private names, and of private packages."""
    # A part of a longer text is no name.
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            yield node.lineno, node.attr, isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, name.name, False) for name in node.names if PACKAGES.match(name.name))
        elif isinstance(node, ast.ImportFrom):
            if PACKAGES.match(node.module or ""):
                yield node.lineno, str(node.module), False
            if (node.module or "").partition(".")[0] in ("tensorflow", "keras", "tf_keras"):
                yield from ((node.lineno, name.name, False) for name in node.names if PRIVATE.fullmatch(name.name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            # Such as the argument of getattr, also if a constant holds it.
            text = node.value
            yield from [(node.lineno, text, False)] if PRIVATE.fullmatch(text) or PACKAGES.match(text) else []


def test_private_names_of_libraries_are_in_compat() -> None:
    trees = sources()
    inherited = {name for tree in trees.values() for name in own_names(tree)}
    found, used = [], set()
    for file, tree in trees.items():
        own = {*own_names(tree), *module_names(tree)}
        for line, name, by_self in private_names(tree):
            allowed = {(file, name), ("*", name)} & ALLOWED.keys()
            used |= allowed
            if not allowed and name not in own and not (by_self and name in inherited):
                found.append(f"{file}:{line}: {name}")
    assert not found, (
        "private names of a library: put each behind a function of dtj_trainer.compat, which "
        "scripts/check_libraries.py tries:\n" + "\n".join(found)
    )
    assert used == ALLOWED.keys()
