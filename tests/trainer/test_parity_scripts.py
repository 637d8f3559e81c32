"""A script trains on several replicas as plain Keras does on one device, however its parts are made, or says why not.

The table is in `parity_scripts.py`. A run tries the cells of ALWAYS; with `DTJ_PARITY=all` it tries the whole table.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from trainer.cluster import Job, inherited
from trainer.outcome import largest_difference
from trainer.parity_scripts import LOAD, MIRRORED, REPLICAS, TOLERANCE, TWO, cells, end, reference

pytestmark = pytest.mark.timeout(4 * 3600)

SCRIPT = Path(__file__).parent / "scripts" / "ways.py"
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
ALWAYS = (
    "step:in the scope", "loop metric:outside the scope", "own step:clip_by_global_norm",
    "own step:noise in the gradients",
)  # fmt: skip
CHOSEN = list(cells()) if os.environ.get("DTJ_PARITY") == "all" else ALWAYS
SECONDS = 2 * 3600
ALONE = "one device"
WORKERS = {TWO: 2, MIRRORED: 1}


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the cells that were asked for have left what came of them."""
    asked = [item.callspec.params for item in request.session.items if item.path == request.path]  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("ways")
    wanted = dict.fromkeys(reference(one["cell"]) for one in asked)
    saved = [f"save {cell.partition(':')[0]}" for cell in wanted if cell.endswith(LOAD)]
    program = [sys.executable, str(SCRIPT), str(folder), ALONE, *saved, *wanted]
    subprocess.run(program, env={**inherited(), **HIDDEN}, cwd=folder, check=True, timeout=SECONDS)
    for replicas in REPLICAS:
        of_these = [one["cell"] for one in asked if one["replicas"] == replicas]
        # Keras and the trainer remember that the workers have trained one model, or have computed.
        together = [cell for cell in of_these if not ends_alone(cell, replicas)]
        for group in ([together] if together else []) + [[cell] for cell in of_these if ends_alone(cell, replicas)]:
            run(folder, replicas, group)
    return folder


def ends_alone(cell: str, replicas: str) -> bool:
    """Whether it ends its processes."""
    found = end(cell, replicas)
    return found is not None and found[1].startswith("ways")


def run(folder: Path, replicas: str, group: Iterable[str]) -> None:
    """Runs cells in one job; where it ends by itself, its only cell has ended so."""
    group = list(group)
    strategy = "Mirrored" if replicas == MIRRORED else "MultiWorkerMirrored"
    arguments = [f"--script={SCRIPT}", "--", str(folder), replicas, *group]
    place = folder / "jobs" / replicas / group[0].replace(":", "-") / str(len(group))
    with Job(place, strategy=strategy, roles={"worker": WORKERS[replicas]}, arguments=arguments, imported=True) as job:
        codes = job.start(environ=HIDDEN).wait(SECONDS)
        for replica in job.replicas.values():
            print(replica.log)
            if codes[replica.name]:
                words = {"line": replica.last_words, "code": codes[replica.name]}
                path = folder / f"{replicas} {replica.name[-1]}" / f"{group[0]}.json"
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps(words))


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("cell", CHOSEN)
def test_a_script_gives_the_numbers_of_plain_keras_or_one_line(results: Path, cell: str, replicas: str) -> None:
    found = [json.loads((place / f"{cell}.json").read_text()) for place in results.glob(f"{replicas} *")]
    assert len(found) == WORKERS[replicas]
    if expected := end(cell, replicas):
        for one in found:
            assert one.get("code") == expected[0], one
            assert re.match(expected[1], one["line"]), one["line"]
            assert "\n" not in one["line"]
        return
    plain = json.loads((results / f"{ALONE} 0" / f"{reference(cell)}.json").read_text())
    for one in found:
        assert "line" not in plain, plain["line"]
        assert "line" not in one, one["line"]
        difference, where = largest_difference(plain, one)
        print(f"{cell} {replicas}: {difference:.2g} {where}")
        assert difference <= TOLERANCE, where
