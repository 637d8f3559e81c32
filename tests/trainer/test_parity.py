"""Any model trains as plain Keras `fit` on one device would at the same global batch, or is refused in one line.

The table is in `parity_cases.py`. A run tries the cases of ALWAYS; with `DTJ_PARITY=all` it tries the whole table, and
with `-k clipnorm` besides it starts processes for the chosen cases alone.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import SOURCE, Job
from trainer.parity_cases import BY_NAME, CASES, ONE_SERVER, THREE_WORKERS, TWO_WORKERS

pytestmark = pytest.mark.timeout(4 * 3600)

PROGRAM = Path(__file__).with_name("parity.py")
ALWAYS = ("penalties", "masked", "sample_weights", "mixed_float16", "clipnorm", "accumulation", "tf_keras_average")
CHOSEN = {case.name for case in CASES} if os.environ.get("DTJ_PARITY") == "all" else set(ALWAYS)
CELLS = [
    pytest.param(case.name, cell, id=f"{case.name}-{cell}")
    for case in CASES
    if case.name in CHOSEN
    for cell in case.cells
]
SECONDS = 2 * 3600
"""In which all cases of one strategy end: the whole table takes a quarter of an hour, and longer on a busy machine."""
PROCESSES = {
    TWO_WORKERS: {"worker": 2},
    THREE_WORKERS: {"worker": 3},
    ONE_SERVER: {"chief": 1, "worker": 1, "ps": 1},
}
"""Which processes a strategy needs, if it needs more than one."""
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(SOURCE)}


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the cells that were asked for have left what came of them."""
    asked: dict[str, dict[str, list[str]]] = {}
    for item in request.session.items:
        if item.path == request.path and (call := getattr(item, "callspec", None)) and "cell" in call.params:
            kind = next((k for k in PROCESSES if call.params["cell"].startswith(k)), "local")
            asked.setdefault(kind, {}).setdefault(call.params["name"], []).append(call.params["cell"])
    # The reference of each case is made there, whatever its other cells are.
    local = {name: cells for cases in asked.values() for name, cells in cases.items()} | asked.get("local", {})
    folder = tmp_path_factory.mktemp("parity")
    run(folder, "local", {"worker": 1}, "local", local)
    for kind, cases in asked.items():
        if kind != "local":
            run(folder, kind, PROCESSES[kind], "servers" if kind == ONE_SERVER else "workers", cases)
    return folder


def run(folder: Path, kind: str, roles: dict[str, int], how: str, cases: dict[str, list[str]]) -> None:
    """Runs cases in one set of processes; what they leave is read by the tests."""
    program = (str(PROGRAM), how, str(folder), *(f"{name}:{','.join(cells)}" for name, cells in cases.items()))
    job = Job(folder / "jobs" / kind, strategy="", roles=roles, program=program)
    job.arguments = []
    with job:
        job.start(environ=HIDDEN)
        # Servers do not end by themselves.
        for replica in [job[f"{role}-{index}"] for role, index in job.tasks if role == "chief" or "chief" not in roles]:
            if replica.wait(SECONDS):
                print(replica.log)


@pytest.mark.parametrize(("name", "cell"), CELLS)
def test_the_weights_are_those_of_plain_keras_on_one_device(results: Path, name: str, cell: str) -> None:
    import numpy as np

    case, found = BY_NAME[name], outcome(results, name, cell)
    if pattern := case.refusal(cell):
        assert isinstance(found, dict), "it was not refused"
        line = found.get("refused", found.get("error"))
        assert re.match(pattern, line), line
        assert "\n" not in line
        assert found.get("code") == case.code
        return
    assert isinstance(found, list), found.get("error", found)
    expected = outcome(results, name, "reference")
    assert isinstance(expected, list), expected.get("error", expected)
    assert [one.shape for one in found] == [one.shape for one in expected]
    difference = max(float(np.abs(a.astype("float64") - b).max()) for a, b in zip(found, expected, strict=True))
    print(f"{name} {cell}: {difference:.2g}")
    assert difference <= case.tolerance
    if "-resumed" in cell:
        straight = outcome(results, name, cell.replace("-resumed", "-custom"))
        assert isinstance(straight, list), "run it together with the cell that is not resumed"
        assert all((a == b).all() for a, b in zip(found, straight, strict=True)), (
            "a resumed run is not the same to the bit"
        )


def outcome(results: Path, name: str, cell: str) -> Any:
    """The weights of a cell, or what it was refused with."""
    import numpy as np

    path = results / name / f"{cell}.npz"
    if path.exists():
        with np.load(path) as saved:
            return [saved[key] for key in saved.files]
    path = path.with_suffix(".json")
    return json.loads(path.read_text()) if path.exists() else {"error": "the process ended before this cell"}
