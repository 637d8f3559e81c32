"""The page "Behaviour" of the site, from the names of the tests.

A hook of mkdocs: ``make docs`` adds the page to the site, and no file of it is committed. Run as a program, it prints
the page; a chapter whose test file does not exist fails in both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = "behaviour.md"

HEAD = """# Behaviour

This page lists what a job does. Each line is the name of a test. *model* is the planner in a model of a cluster.
*API server* is a real kube-apiserver with simulated pods. *pods* is a real node. What any operator can be tried by is
in [Conformance](conformance.md).
"""

CHAPTERS = {
    "Start": (
        "unit/core/test_planner.py",
        "unit/core/test_admission_check.py",
        "unit/core/test_name_collision.py",
        "unit/core/test_checkpoint_claim.py",
        "unit/core/test_pods.py",
        "unit/core/test_stale_status.py",
        "unit/core/test_blockers.py",
    ),
    "From manifest to end": (
        "unit/core/test_success_policy.py",
        "unit/core/test_finish.py",
        "unit/core/test_clean_pod_policy.py",
        "api/test_operator_lifecycle.py",
        "e2e/test_jobs.py",
        "e2e/test_training.py",
    ),
    "Why pods end, and what follows": (
        "unit/core/test_pod_failure.py",
        "unit/core/test_sidecars.py",
        "unit/core/test_charges.py",
        "unit/core/test_restart.py",
        "api/test_operator_attempts.py",
        "e2e/test_sidecars.py",
    ),
    "The tf.data service": ("unit/core/test_data_service.py",),
    "Budgets": ("unit/core/test_restart_budgets.py", "unit/core/test_restart_wait.py"),
    "Deadlines": ("unit/core/test_deadlines.py",),
    "States, and the end of the Service": ("unit/core/test_conditions.py", "unit/core/test_service.py"),
    "Suspending": ("unit/core/test_suspend.py",),
    "Scaling": ("unit/core/test_elastic.py",),
    "All pods or none": (
        "unit/core/test_admission.py",
        "unit/core/test_kueue.py",
        "unit/core/test_kueue_workload_status.py",
        "unit/core/test_kueue_multikueue.py",
        "unit/core/test_kueue_topology.py",
        "api/test_operator_gangs.py",
    ),
    "Progress and stalls": (
        "unit/core/test_progress.py",
        "unit/core/test_stall.py",
        "unit/engine/test_progress.py",
        "unit/engine/test_progress_reader.py",
        "unit/engine/test_status_port.py",
    ),
    "TensorBoard": ("unit/core/test_tensorboard.py",),
    "Stragglers": ("unit/core/test_straggler.py", "unit/engine/test_stragglers.py"),
    "Pod security": ("api/test_operator_pod_security.py",),
    "API writes": ("api/test_operator_writes.py",),
    "Operators that die, clusters that break": (
        "campaigns/test_clocks.py",
        "campaigns/test_stale_views.py",
        "unit/engine/test_chaos.py",
        "api/test_refusals.py",
        "api/test_operator_survival.py",
        "api/test_operator_standby.py",
    ),
}
LEVELS = {"unit": "model", "api": "API server", "campaigns": "model", "e2e": "pods"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page to the site."""
    from mkdocs.structure.files import File  # only the environment of the documents has mkdocs

    files.append(File.generated(config, PAGE, content=render()))
    return files


def render() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *(_chapter(title, files) for title, files in CHAPTERS.items())])


def _chapter(title: str, files: tuple[str, ...]) -> str:
    rows = (
        f"| {sentence} | {LEVELS[file.partition('/')[0]]} |"
        for file in files
        for sentence in sentences((ROOT / "tests" / file).read_text())
    )
    return "\n".join((f"## {title}", "", "| Behaviour | Tried in |", "| --- | --- |", *rows, ""))


def sentences(source: str) -> Iterator[str]:
    """The tests of a file as sentences; those of a class begin with its name."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            subject = "".join(f" {c.lower()}" if c.isupper() else c for c in node.name.removeprefix("Test")).strip()
            yield from (f"{subject}: {_sentence(test)}" for test in node.body if _is_test(test))
        elif _is_test(node):
            yield _sentence(node)


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")


def _sentence(node: ast.stmt) -> str:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node.name.removeprefix("test_").replace("_", " ")


if __name__ == "__main__":
    print(render(), end="")
