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
    "compiled ragged": "a loss or a metric of all 2 replicas cannot be computed of ragged tensors on a TPU, which take",
    "TPU, batch of 7": "--model=mine:model: loss root, metric root is computed of all examples of a batch together, w",
    "no rows": "a loss or metric of all 2 replicas cannot be computed of a tensor of shape (), which has no rows; ret",
}
EQUAL = (
    "of all", "pairs", "all of one replica", "ragged", "ragged of one replica", "bfloat16", "float16", "bool", "uint8",
    "large int64", "masks", "infinite logits", "a dict", "each",
)  # fmt: skip
OF_TPU = "TPU, batch of 6"
COMPILED = ("of all", "pairs", "bfloat16", "uint8", "large int64", "masks", "infinite logits")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What came of the cases; logical devices need a process of their own."""
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), str(SOURCE / "dtj_launch"), str(PROGRAM.parent)])
    done = subprocess.run([sys.executable, PROGRAM], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    cases: dict[str, Any] = json.loads(done.stdout)
    assert cases.keys() == {*EQUAL, *REFUSED, OF_TPU, *(f"compiled {case}" for case in COMPILED)}
    return cases


@pytest.mark.parametrize("case", EQUAL)
def test_value_and_gradient_are_those_of_one_device(found: dict[str, Any], case: str) -> None:
    assert isinstance(found[case], list), found[case]
    assert max(found[case]) <= ROUNDED.get(case, 2e-6)


@pytest.mark.parametrize("case", COMPILED)
def test_a_step_that_xla_compiles_as_for_a_tpu_gives_the_same(found: dict[str, Any], case: str) -> None:
    differences = found[f"compiled {case}"]
    assert isinstance(differences, list), differences
    assert max(differences) <= ROUNDED.get(case, 2e-6)


def test_loss_and_metrics_of_a_model_are_compiled_as_for_a_tpu(found: dict[str, Any]) -> None:
    assert isinstance(found[OF_TPU], list), found[OF_TPU]
    assert max(found[OF_TPU]) <= 2e-6


@pytest.mark.parametrize(("case", "line"), REFUSED.items())
def test_what_cannot_be_gathered_is_one_line(found: dict[str, Any], case: str, line: str) -> None:
    assert isinstance(found[case], str)
    assert found[case].startswith(line)
    assert "\n" not in found[case]
