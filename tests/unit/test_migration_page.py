"""docs/migration.md: the way back from this operator to training-operator undoes the way there."""

from __future__ import annotations

import json
import re

from dtj.api.spec import Gang
from dtj.core.admission.schedulers import SCHEDULER_NAMES
from support.snippets import ROOT, blocks

PAGE = ROOT / "docs" / "migration.md"
THERE, BACK = [block.commands for block in blocks(PAGE) if "training-operator" in block.text and block.is_shell]


def patched(commands: list[list[str]], operation: str) -> set[str]:
    """The paths at which the Deployment of training-operator is changed so, before its manifests are applied."""
    found: set[str] = set()
    for words in commands:
        if "apply" in words:
            break
        if "patch" in words and "deployment" in words:
            found |= {one["path"] for one in json.loads(words[-1]) if one["op"] == operation}
    return found


def test_the_way_back_removes_what_the_way_there_adds() -> None:
    """A server-side apply of manifests that lack a field leaves it to whoever has set it."""
    assert patched(THERE, "add")
    assert patched(BACK, "remove") == patched(THERE, "add")


def test_the_page_and_the_chart_name_the_scheduler_that_coscheduling_means() -> None:
    values = (ROOT / "charts" / "dtj" / "values.yaml").read_text()
    for text in (PAGE.read_text(), values):
        assert re.search(SCHEDULER_NAMES[Gang.COSCHEDULING], text)
