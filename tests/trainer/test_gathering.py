"""A loss of all examples is the same on replicas that gather as on one device, and so is its gradient."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import SOURCE

PROGRAM = Path(__file__).with_name("gathering_cases.py")
ROUNDED = {"bfloat16": 2e-2, "float16": 2e-3}
REFUSED = {
    "texts": "a loss or a metric of all 2 replicas cannot be computed of string labels, which TensorFlow does not gath",
    "no rows": "a loss or metric of all 2 replicas cannot be computed of a tensor of shape (), which has no rows; ret",
}
EQUAL = (
    "of all", "pairs", "all of one replica", "ragged", "ragged of one replica", "bfloat16", "float16", "bool", "uint8",
    "large int64", "masks", "infinite logits", "a dict", "each",
)  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What came of the cases; logical devices need a process of their own."""
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), str(SOURCE / "dtj_launch"), str(PROGRAM.parent)])
    done = subprocess.run([sys.executable, PROGRAM], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    cases: dict[str, Any] = json.loads(done.stdout)
    assert cases.keys() == {*EQUAL, *REFUSED}
    return cases


@pytest.mark.parametrize("case", EQUAL)
def test_value_and_gradient_are_those_of_one_device(found: dict[str, Any], case: str) -> None:
    assert isinstance(found[case], list), found[case]
    assert max(found[case]) <= ROUNDED.get(case, 2e-6)


@pytest.mark.parametrize(("case", "line"), REFUSED.items())
def test_what_cannot_be_gathered_is_one_line(found: dict[str, Any], case: str, line: str) -> None:
    assert isinstance(found[case], str)
    assert found[case].startswith(line)
    assert "\n" not in found[case]
