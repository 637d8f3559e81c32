"""The words of the project: standard words of the field in names, and plain English in what users read.

docs/glossary.md has the meanings.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from dtj.api.crd import job_schema
from dtj.api.json import JsonObject
from dtj.api.rules import RULES
from support.snippets import ROOT

pytestmark = pytest.mark.unit

AVOIDED: Final = {
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"told|tells": "reported, shows, requested",
    r"said": "reported",
    r"for want of": "because there is no",
    r"so many": "a number",
    r"beside": "next to, in addition to",
    r"strangers?": "foreign, another client",
    r"as far as": "what exactly",
    r"such as it is": "unchanged",
    r"(?<!user )(?<!users )(?<!people )who(ever)? (is|has|does|may|can|runs|reaches)": "that, or a user who",
    r"for ever": "forever",
}
"""Words that a native reader has to read twice, each with what to write instead."""

REPLACED_NAMES: Final = {
    "Picture": "JobContext",
    "Holding": "policies",
    "Starting": "policies",
    "Assertion": "DesiredCondition",
    "Verdicts": "DesiredConditions",
    "ApplyService": "CreateService",
    "PointService": "UpdateService",
    "UpdateServiceSelector": "UpdateService",
    "is_follow_up": "is_secondary_failure",
    "must_be_gone": "requires_predecessor_gone",
    "needs_the_completed": "blocked_by_completed_peers",
    "strangers": "foreign_pods",
    "JobMemory": "JobCache",
    "Memories": "JobCaches",
    "Right": "PolicyRule",
    "WHERE_JOBS_RUN": "NAMESPACE_RULES",
    "Rehearsal": "Simulation",
    "judge": "compute_metrics",
    "kerases": "keras_compat",
    "Draws": "RngState",
    "uncounted": "unseeded_layers",
    "Wishes": "Vote",
    "save_meanwhile": "save_async",
    "is_mark": "is_checkpoint_step",
    "legs": "fit_segments",
    "Doorbell": "ReadinessListener",
    "knock": "probe",
    "greet": "handshake",
    "meet": "rendezvous",
    "Telling": "StatusPoller",
    "mended_alone": "replace_single_pod",
    "Again": "Restart",
    "Ending": "PodFailureClass",
    "Ended": "TerminatedPod",
    "Beside": "BestEffort",
    "concerns_all": "requires_full_restart",
    "HOPELESS": "NON_RETRYABLE_EXIT_CODES",
    "room_in": "seconds_until_predecessor_gone",
    "Sighting": "UnlabelledObject",
    "Paces": "StepTimings",
    "Deed": "Operation",
    "Wish": "WaitCondition",
    "NeverComes": "ConditionUnreachable",
    "Why": "Diagnosis",
    "Board": "ProgressStore",
    "Given": "ParsedArgs",
    "held_out": "validation",
    "judged": "validation",
    "told": "what it is: description, message, requested",
    "said": "what it is: output, answer, message",
    "heard": "what it is: received, requested",
    "Rig": "Harness",
    "MortalWorld": "RestartableCluster",
    "Lives": "OperatorRuns",
    "Death": "KillPoint",
    "leash": "supervise",
}
"""Names of modules, classes, functions, parameters and variables that are no longer given, with the standard name."""

REPLACED_PARTS: Final = {
    r"^_?(MOST|LEAST|FEWEST)(_|$)": "MAX_, MIN_",
    r"_LIFE$": "_TTL",
    r"(?i)(^|_)(told|said|heard)(_|$)": "what it is: description, answer, requested, shown",
    r"(?i)(^|_)anew(_|$)": "again",
    r"(?i)(^|_)beside(_|$)": "next_to",
    r"(?i)(^|_)strangers?(_|$)": "foreign, others",
    r"(?i)(^|_)judged?(_|$)": "compute_metrics, measured",
}

OF_THE_TRAINER: Final = (
    "tests/trainer/",
    "tests/unit/trainer/",
    "tests/unit/launch/",
    "tests/support/launched.py",
)
"""The tests of the trainer, which are a room of their own."""

_WORDS: Final = re.compile(rf"\b({'|'.join(AVOIDED)})\b", re.IGNORECASE)
_QUOTED: Final = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)


@dataclass(frozen=True)
class Found:
    """One replaced word: where it is, and what to write instead."""

    place: str
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.place}: {self.word!r}: write {self.instead}"


def avoided(text: str, place: str) -> list[Found]:
    """The avoided words of a text."""
    return [Found(place, match[0], _instead(match[0])) for match in _WORDS.finditer(text)]


def _instead(word: str) -> str:
    return next(better for pattern, better in AVOIDED.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def tracked(*patterns: str) -> list[Path]:
    """The files that git knows, and that are there."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split() if (ROOT / name).exists()]


def room_of(path: Path) -> str:
    """The part of the tree that a file belongs to: operator/dtj/core, trainer-image, tests, tests/trainer, scripts."""
    name = str(path.relative_to(ROOT))
    if name.startswith(OF_THE_TRAINER):
        return "tests/trainer"
    parts = path.relative_to(ROOT).parts
    depth = {"operator": 3}.get(parts[0], 1)
    return "/".join(parts[: min(depth, len(parts) - 1)])


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The string constants of a program without its docstrings, with their lines."""
    documentation: set[int] = set()
    for node in ast.walk(tree_of(path)):
        statements = getattr(node, "body", None)
        if isinstance(statements, list):
            documentation |= {id(s.value) for s in statements if isinstance(s, ast.Expr)}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def documentation(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and the comments of a program, with their lines."""
    for node in ast.walk(tree_of(path)):
        for statement in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def names(path: Path) -> Iterator[tuple[int, str]]:
    """The names that a module defines: its own, classes, functions, parameters, variables and attributes."""
    yield 1, path.stem
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def is_replaced(name: str) -> str | None:
    """The standard name for a name that is no longer given, else None."""
    parts = (better for pattern, better in REPLACED_PARTS.items() if re.search(pattern, name))
    return REPLACED_NAMES.get(name.strip("_")) or next(parts, None)


def replaced(path: Path) -> list[Found]:
    """The definitions of a module whose name has a standard word."""
    place = path.relative_to(ROOT)
    return [
        Found(f"{place}:{line}", name, instead)
        for line, name in names(path)
        if (instead := is_replaced(name)) is not None
    ]


PROGRAMS: Final = tracked("operator/*.py", "trainer-image/*.py", "scripts/*.py")
ROOMS: Final = sorted({room_of(path) for path in PROGRAMS})
TESTS: Final = tracked("tests/*.py")
ALL_ROOMS: Final = sorted({room_of(path) for path in (*PROGRAMS, *TESTS)})


def check(found: list[Found], *, what: str) -> None:
    """Fail with all places."""
    assert not found, "\n".join([f"{what}:", *map(str, found)])


def documents() -> list[Path]:
    """What people read: documents, examples, and what the chart says. Changelog and decisions are history."""
    kept = tracked("README.md", "CONTRIBUTING.md", "docs/*.md", "examples/*", "charts/*", "trainer-image/*.md")
    return [
        path
        for path in kept
        if path.suffix in (".md", ".yaml", ".txt", ".json", ".tpl")
        and "docs/adr/" not in str(path)
        and path.name != "crd.yaml"  # with Kubernetes' own descriptions of a pod template; ours are looked at below
        and "datasets" not in path.parts
    ]


def test_documents_examples_and_chart_are_written_in_plain_english() -> None:
    found = [
        one
        for path in documents()
        for number, line in enumerate(_QUOTED.sub(_blank, path.read_text()).splitlines(), 1)
        for one in avoided(line, f"{path.relative_to(ROOT)}:{number}")
    ]
    check(found, what="avoided words in documents")


def _blank(match: re.Match[str]) -> str:
    """Nothing in place of quoted code, but on as many lines."""
    return "\n" * match[0].count("\n")


def test_descriptions_and_rules_of_the_crd_are_written_in_plain_english() -> None:
    schema = job_schema()
    properties = schema["properties"]
    assert isinstance(properties, dict)
    found = [one for place, text in _described(properties, "") for one in avoided(text, place)]
    found += [one for rule in RULES for one in avoided(rule.message, "a rule")]
    check(found, what="avoided words in the CRD")


def _described(properties: JsonObject, path: str) -> Iterator[tuple[str, str]]:
    """Our descriptions, by path; those of a pod template are Kubernetes'."""
    for name, field in properties.items():
        if not isinstance(field, dict):
            continue
        yield f"{path}.{name}", str(field.get("description", ""))
        if name in ("template", "volume", "resources", "env", "tolerations"):
            continue
        for inner in (field, field.get("items"), field.get("additionalProperties")):
            if isinstance(inner, dict) and isinstance(below := inner.get("properties"), dict):
                yield from _described(below, f"{path}.{name}")


@pytest.mark.parametrize("room", ROOMS)
def test_messages_are_written_in_plain_english(room: str) -> None:
    found = [
        one
        for path in PROGRAMS
        if room_of(path) == room
        for line, text in texts(path)
        for one in avoided(text, f"{path.relative_to(ROOT)}:{line}")
    ]
    check(found, what=f"avoided words in the messages of {room}")


@pytest.mark.parametrize("room", ALL_ROOMS)
def test_docstrings_and_comments_are_written_in_plain_english(room: str) -> None:
    found = [
        one
        for path in (*PROGRAMS, *TESTS)
        if room_of(path) == room and path.name != "test_vocabulary.py"
        for line, text in documentation(path)
        for one in avoided(text, f"{path.relative_to(ROOT)}:{line}")
    ]
    check(found, what=f"avoided words in docstrings and comments of {room}")


@pytest.mark.parametrize("room", ALL_ROOMS)
def test_names_are_the_standard_words(room: str) -> None:
    found = [one for path in (*PROGRAMS, *TESTS) if room_of(path) == room for one in replaced(path)]
    check(found, what=f"replaced names in {room}")


def test_the_workflows_and_the_help_of_make_are_written_in_plain_english() -> None:
    found = [
        one
        for path in tracked("Makefile", ".github/workflows/*.yml", "scripts/*.sh", "mkdocs.yml")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for one in avoided(line, f"{path.relative_to(ROOT)}:{number}")
    ]
    check(found, what="avoided words in Makefile, scripts and workflows")


def test_the_check_finds_words_and_names_and_leaves_other_words_alone(tmp_path: Path) -> None:
    assert [(one.word, one.instead) for one in avoided("mend it Anew; amended, foretold", "x")] == [
        ("mend", "fix"),
        ("Anew", "again"),
    ]
    program = tmp_path / "kerases.py"
    program.write_text('"""Docstring: told."""\nMOST_PODS = 1\ndef keep(told):\n    """Told."""\n    return "told"\n')
    assert [text for _, text in texts(program)] == ["told"]
    assert [name for _, name in names(program) if is_replaced(name)] == ["kerases", "MOST_PODS", "told"]
