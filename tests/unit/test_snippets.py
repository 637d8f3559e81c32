"""Every block of code in the documents is run by a test, or says what it needs that a test has not.

Here nothing but `dtj validate` is run: manifests are validated, Python is compiled and its imports looked up, commands
are parsed by the programs that they are for, marked ones too; and no block goes by that is neither run nor marked.
"""

from __future__ import annotations

import ast
import copy
import importlib
import re
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from builders import manifest
from dtj.api.job import Job
from dtj.api.json import JsonObject, object_at
from dtj.api.spec import JobSpec
from dtj.api.validation import validate
from dtj.cli.common.options import OnCluster
from dtj.cli.main import cli
from dtj.core.platform import Platform
from dtj.core.validity import problems
from dtj_trainer.config.parsing import parse
from support.snippets import BY_CI, ROOT, RUN_HERE, TRIES_PYTHON, Block, blocks, documents

GENERATED = {"docs/cli.md"}
"""Made from the commands themselves, with usage lines in their blocks."""

BLOCKS = [block for file in documents() for block in blocks(file) if block.file not in GENERATED]

NEEDED = {
    "kubectl": {"cluster", "kind", "gcloud"},
    "helm": {"cluster", "kind", "a registry"},
    "docker": {"docker"},
    "kind": {"kind"},
    "gcloud": {"gcloud"},
    "eksctl": {"AWS"},
    "aws": {"AWS"},
    "az": {"Azure"},
    "curl": {"TensorFlow Serving"},
    "skopeo": {"a registry"},
    "ctr": {"containerd"},
    "pip": {"network"},
}
"""What a program needs that a test has not; one of these must stand in the block's marker."""

LANGUAGES = {"bash", "console", "yaml", "python", "dockerfile", "text", ""}

KNOWN_NEEDS = {"a checkout", "GPU", "TPU", "TensorFlow.js", "a bucket", "a quiet machine"}.union(*NEEDED.values())


def of(*languages: str) -> list[object]:
    return [pytest.param(block, id=block.title) for block in BLOCKS if block.language in languages]


def test_the_documents_have_blocks_of_known_languages_alone() -> None:
    unknown = [block.title for block in BLOCKS if block.language not in LANGUAGES]
    assert unknown == [], "say ```bash, ```text or what it is, instead of indenting"


def test_markers_name_what_is_known_and_stand_before_a_block() -> None:
    assert {need for block in BLOCKS for need in block.needs} <= KNOWN_NEEDS
    written = sum(file.read_text().count("<!-- needs: ") for file in documents())
    # The sentence in CONTRIBUTING.md that explains a marker is the one that marks nothing.
    assert written - 1 == sum(bool(block.needs) for block in BLOCKS)


@pytest.mark.parametrize("command", BY_CI)
def test_what_is_left_to_ci_is_run_there(command: str) -> None:
    file, words = BY_CI[command]
    assert words in (ROOT / file).read_text()
    assert any(command in block.lines for block in BLOCKS if block.is_shell), "no document has it"


# -- manifests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of("yaml"))
def test_manifests_are_valid_and_parts_of_them_too(block: Block) -> None:
    for body in yaml.safe_load_all(block.text):
        assert isinstance(body, dict), "a block of YAML holds fields"
        if body.get("kind") == "DistributedTrainingJob":
            check_job(body)
        elif "kind" in body:
            assert body.keys() >= {"apiVersion", "metadata"}
        elif body.keys() <= {"spec", "apiVersion", "metadata"}:
            check_job(part_of_a_job(body.get("spec", {})))
        elif body.keys() <= fields_of_the_spec():
            check_job(part_of_a_job(body))
        else:
            check_values(body)


def check_job(body: JsonObject) -> None:
    assert validate(body) == ()
    metadata = object_at(body, "metadata")
    job = Job.from_object({**body, "metadata": {**metadata, "uid": "u"}})
    assert problems(job, Platform()) == ()


def part_of_a_job(spec: JsonObject) -> JsonObject:
    """A small job with these fields of its spec."""
    return manifest(**copy.deepcopy(spec)) if "strategy" in spec else manifest("digits", **copy.deepcopy(spec))  # type: ignore[arg-type]


def fields_of_the_spec() -> set[str]:
    return {field.alias or name for name, field in JobSpec.model_fields.items()}


def check_values(body: JsonObject) -> None:
    """They are values of the chart."""
    known = yaml.safe_load((ROOT / "charts" / "dtj" / "values.yaml").read_text())
    for name, value in body.items():
        assert name in known, f"{name} is no field of a job's spec and no value of the chart"
        if isinstance(value, dict) and isinstance(known[name], dict) and known[name]:
            assert value.keys() <= known[name].keys()


# -- Python -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of("python"))
def test_python_compiles_and_what_it_imports_is_there(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dtj_trainer":
            defined = names_defined_in(ROOT / "trainer-image" / (node.module or "").replace(".", "/"))
            assert {alias.name for alias in node.names} <= defined
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dtj":
            module = importlib.import_module(node.module or "")
            assert all(hasattr(module, alias.name) for alias in node.names)


@pytest.mark.parametrize("block", of("python"))
def test_python_is_run_by_a_test_or_says_what_it_needs(block: Block) -> None:
    if not block.needs:
        assert block.file in TRIES_PYTHON, f"{block.title} is neither run by a test nor marked <!-- needs: … -->"
        assert block.file in (ROOT / TRIES_PYTHON[block.file]).read_text()


def names_defined_in(module: Path) -> set[str]:
    """What a module of the trainer's defines or imports; importing it takes TensorFlow."""
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


# -- commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of("bash", "console"))
def test_commands_are_run_or_say_what_they_need(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert block.lines, "a block of commands has none: is it a text?"
    assert subprocess.run(["bash", "-n"], input="\n".join(block.lines), text=True, check=False).returncode == 0
    assert block.needs or not any(re.fullmatch(r"cd \S+", line) for line in block.lines), "tests type line by line"
    for words in block.commands:
        check_command(words, block.needs)


@pytest.mark.parametrize("block", of("dockerfile"))
def test_parts_of_a_dockerfile_say_that_they_need_docker(block: Block) -> None:
    assert "docker" in block.needs


@pytest.mark.parametrize("block", of("", "text"))
def test_what_is_not_called_a_command_is_none(block: Block) -> None:
    begins = re.compile(
        r"^(\$ |dtj [a-z]|\.venv/bin/dtj|python3? -m|kubectl |helm |docker |make [a-z]|pip )", re.MULTILINE
    )
    assert begins.search(block.text) is None, "say ```bash, so that it is tried"


def check_command(words: list[str], needs: frozenset[str]) -> None:
    """It has the options that are given, and is run by a test or marked."""
    command, program = " ".join(words), words[0].rpartition("/")[2]
    if program in NEEDED:
        assert needs & NEEDED[program], f"{command}: <!-- needs: … --> must name one of {sorted(NEEDED[program])}"
        check_files(words)
        return
    assert needs or program in RUN_HERE or command in BY_CI, f"{command}: is neither run by a test nor marked"
    if program == "dtj":
        check_dtj(words[1:], needs)
    elif program == "python":
        assert words[1] == "-m", command
        check_module(words[2:])
    elif program == "make":
        targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), command
    elif program not in RUN_HERE:
        assert (ROOT / words[0]).exists(), f"{words[0]} is no program that is known here"


def check_dtj(words: list[str], needs: frozenset[str]) -> None:
    """The options and arguments are those that the command has."""
    if not words or words[0].startswith("-"):
        return
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None, f"dtj has no command {words[0]}"
    context = command.make_context(words[0], list(words[1:]))
    check_files(words)
    if words[0] == "validate":
        assert cli.main(words, standalone_mode=False) == 0
    if asks_a_cluster(context):
        assert needs & NEEDED["kubectl"], f"dtj {' '.join(words)}: <!-- needs: cluster -->"


def asks_a_cluster(context: click.Context) -> bool:
    """Whether the command takes kubectl's options, and none selects this machine instead."""
    takes = {parameter.name for parameter in context.command.params}
    if "kubeconfig" not in takes or context.params.get("run"):
        return False
    if "sources" in takes:
        return any(isinstance(source, OnCluster) for source in context.params["sources"])
    switch = next((name for name in ("on_cluster", "server") if name in takes), None)
    return switch is None or bool(context.params[switch])


def check_module(words: list[str]) -> None:
    """A module of the trainer's, with options that it has, or of the tests."""
    if words[0] == "dtj_trainer":
        parse([word for word in words[1:] if word != "…"], {})
    else:
        paths = [ROOT / folder / words[0].replace(".", "/") for folder in ("trainer-image", "tests")]
        assert any(path.exists() or path.with_suffix(".py").exists() for path in paths), words[0]


def check_files(words: list[str]) -> None:
    """Manifests and charts that are named are there."""
    for word in words:
        if word.startswith(("examples/", "charts/", "crds/", "trainer-image/")) and not word.endswith("…"):
            assert (ROOT / word).exists(), word
