"""A loss that is NaN: the training stops or leaves the update out, and no checkpoint is spoiled."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer import cluster
from trainer.cluster import Job
from trainer.not_finite import ARGUMENTS, BAD_STEP, FAR, HUGE, MINE, OVERFLOWS, STAGED, expected, saved, weights

WHERE = {
    "OneDevice": f"the loss is not finite at step {BAD_STEP}",
    "MultiWorkerMirrored": f"the loss is not finite at step {BAD_STEP} on worker 1",
}
OWN_OPTIMIZER = [a for a in ARGUMENTS if not a.startswith(("--model", "--optimizer", "--learning-rate"))]


def ran(
    folder: Path, strategy: str, *more: str, program: str = MINE, code: int = 1, arguments: Sequence[str] = ARGUMENTS,
    **options: Any,
) -> Job:  # fmt: skip
    """A job of MINE that has ended so."""
    if strategy == "ParameterServer":
        program = program.replace("import keras", "import tf_keras as keras")
    files = {"mine.py": program}
    return cluster.ran(folder, code=code, strategy=strategy, arguments=[*arguments, *more], files=files, **options)


@pytest.mark.parametrize("strategy", ["OneDevice", "MultiWorkerMirrored"])
def test_a_nan_loss_ends_every_worker_with_1_and_the_step_and_keeps_the_finite_checkpoints(
    folder: Path, strategy: str
) -> None:
    job = ran(folder, strategy, "--steps-per-call=7")
    for replica in job.replicas.values():
        stays = f"the last finite checkpoint is {job.checkpoints}/ckpt-30"
        assert replica.last_words.startswith(f"{WHERE[strategy]}; {stays}")
        assert "Traceback" not in replica.log
    assert saved(job) == [20, 30]
    assert all(np.isfinite(each).all() for each in weights(job, 30))
    assert not (folder / "export").exists() or not any((folder / "export").iterdir())


@pytest.mark.parametrize(
    ("strategy", "where"),
    [
        ("ParameterServer", r"the loss is not finite by step \d+ on worker 0; "),
        ("Pipeline", rf"the loss is not finite at step {BAD_STEP} on worker 0 \(stage 0\); "),
    ],
)
def test_strategies_that_can_only_stop_do_so_and_keep_the_finite_checkpoints(
    folder: Path, strategy: str, where: str
) -> None:
    job = ran(folder, strategy, "--steps-per-call=4")
    assert re.match(where + "the last finite checkpoint is .*/ckpt-30; ", job[job.leader].last_words)
    assert job.newest_checkpoint == 30


@pytest.mark.parametrize(
    ("model", "line"),
    [
        # What is seen at step 34 are the weights that the gradients of step 33 have spoiled, all the way to stage 0.
        ("second_stage_spoils", rf"the loss is not finite at step {BAD_STEP + 1} on worker 1 \(stage 1\); "),
        ("second_stage_is_infinite", rf"the loss is not finite at step {BAD_STEP} on worker 1 \(stage 1\); "),
        ("hides_all", r"the weights are not finite by step 40 on worker 1 \(stage 1\); "),
    ],
)
def test_the_stage_of_a_pipeline_is_named_that_was_the_first_to_be_not_finite(
    folder: Path, model: str, line: str
) -> None:
    more = ("--steps-per-call=4", "--stages=cut", f"--model=mine:{model}")
    job = ran(folder, "Pipeline", *more, program=FAR + STAGED)
    assert re.match(line, job["worker-0"].last_words)
    assert job.newest_checkpoint == 30


def test_one_of_two_workers_of_a_parameter_server_is_named(folder: Path) -> None:
    """Both have the same examples, and whichever comes to the bad one first is named; the chief trains nothing."""
    roles = {"chief": 1, "worker": 2, "ps": 1}
    job = ran(folder, "ParameterServer", "--steps-per-call=4", "--epochs=2", roles=roles)
    assert re.match(r"the loss is not finite by step \d+ on worker [01]; ", job["chief-0"].last_words)


def test_a_last_step_that_is_not_finite_is_not_saved(folder: Path) -> None:
    job = ran(folder, "OneDevice", program=MINE.replace("(480, 4)", f"({BAD_STEP * 8}, 4)"))
    assert job.newest_checkpoint == 30


STATE = "the weights are finite, but the optimizer's state is not finite"
STAYS = "the last finite checkpoint is checkpoints/ckpt-"


@pytest.mark.parametrize(
    ("model", "every", "program", "line", "kept"),
    [
        ("infinite_gradients", 1, MINE, "the weights are not finite at step 1; there is no checkpoint; ", []),
        # The variance of the batch divides.
        ("normalized", 10, HUGE, f"the weights are not finite by step 40; {STAYS}30; ", [20, 30]),
        ("spoils", 1, OVERFLOWS, f"{STATE} at step {BAD_STEP}; {STAYS}{BAD_STEP - 1}; ", [BAD_STEP - 2, BAD_STEP - 1]),
    ],
    ids=["weights", "statistics of a normalization", "second moment of Adam"],
)
def test_what_is_not_finite_where_the_loss_is_is_never_saved(
    folder: Path, model: str, every: int, program: str, line: str, kept: list[int]
) -> None:
    more = (f"--model=mine:{model}", f"--checkpoint-every-steps={every}")
    job = ran(folder, "OneDevice", *more, program=program)
    assert job["worker-0"].last_words.replace(f"{folder}/", "").startswith(line)
    assert saved(job) == kept


@pytest.mark.parametrize("action", ["fail", "skip"])
def test_gradients_that_overflow_under_loss_scaling_are_no_failure(folder: Path, action: str) -> None:
    program, more = MINE.replace("    inputs[(", "    # "), ("--model=mine:overflows", f"--on-nan={action}")
    job = ran(folder, "OneDevice", *more, program=program, code=0, arguments=OWN_OPTIMIZER)
    assert "not finite" not in job["worker-0"].log
    assert all(np.isfinite(each).all() for each in weights(job, 60))


@pytest.mark.parametrize(
    ("model", "program", "named"),
    # Synchronized normalization makes it not finite on both workers.
    [("model", MINE, True), ("normalized", MINE, False), ("spoils", FAR, True)],
    ids=["a loss", "statistics of a normalization", "a gradient alone"],
)
@pytest.mark.parametrize("strategy", ["OneDevice", "MultiWorkerMirrored"])
def test_skip_leaves_out_the_update_on_all_replicas(
    folder: Path, strategy: str, model: str, program: str, named: bool
) -> None:
    job = ran(folder, strategy, "--on-nan=skip", f"--model=mine:{model}", program=program, code=0)
    on = WHERE[strategy].replace("the loss is", "the loss or a gradient is") if named else ""
    assert re.search(rf"warning: .*{on}.*: its update is skipped \(1 of at most 10\)", job["worker-0"].log)
    # The same as plain Keras, which is not given the batch at all.
    for ours, theirs in zip(weights(job, 60), expected(folder, model), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(
    ("strategy", "where"),
    [
        ("OneDevice", "40"), ("MultiWorkerMirrored", "40"), ("ParameterServer", r"\d+"),
        ("Pipeline", r"\d+ on worker 0 \(stage 0\)"),
    ],
)  # fmt: skip
def test_an_optimizer_whose_state_is_not_finite_is_never_saved(folder: Path, strategy: str, where: str) -> None:
    job = ran(folder, strategy, "--model=mine:spoils", "--optimizer=rmsprop", program=OVERFLOWS)
    line = rf"{STATE} by step {where}; the last finite checkpoint is {job.checkpoints}/ckpt-30; "
    assert re.match(line, job[job.leader].last_words)
    assert job.newest_checkpoint == 30


LEAST = """
class LeastSGD(keras.optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        self.least = self.add_variable((), initializer=keras.initializers.Constant(np.inf), name="least")

class Least(keras.layers.Layer):
    def build(self, shape):
        self.least = self.add_weight(shape=(), initializer=keras.initializers.Constant(np.inf), trainable=False)
    def call(self, inputs):
        return inputs

def of_optimizer():
    found = model()
    found.compile(LeastSGD(0.001), loss="mse")
    return found

def of_layer():
    return model(Least())
"""


@pytest.mark.parametrize(("state", "arguments"), [("of_optimizer", OWN_OPTIMIZER), ("of_layer", ARGUMENTS)])
def test_a_state_that_is_infinite_from_the_start_is_no_failure(
    folder: Path, state: str, arguments: Sequence[str]
) -> None:
    program = MINE.replace("    inputs[(", "    # ") + LEAST
    ran(folder, "OneDevice", f"--model=mine:{state}", program=program, code=0, arguments=arguments)


def test_a_call_without_an_update_shows_no_metrics(folder: Path) -> None:
    program = MINE.replace("+ 5]", ":]")
    arguments = ["--on-nan=skip", "--model=mine:with_metric", "--progress-every=0.001", "--steps-per-call=1"]
    program += """
def with_metric():
    found = model()
    found.compile(loss="mse", metrics=["mae"])
    return found
"""
    job = ran(folder, "OneDevice", *arguments, program=program)
    assert re.search(r"step 35/60.*skipped_steps 3", job["worker-0"].log)
    assert not re.search(r"step 35/60.*mae", job["worker-0"].log)


def test_a_result_never_holds_a_bare_nan(folder: Path) -> None:
    program = MINE.replace("examples.take(8)", "examples.skip(256)").replace('{{"training": examples,', "")
    program = program.replace('"training": examples,', '"training": examples.take(80),')
    ran(folder, "OneDevice", program=program, code=0)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    result = json.loads((folder / "logs" / "result.json").read_text(), parse_constant=refuse)
    assert result["loss"] is None


@pytest.mark.parametrize(
    ("error", "collective", "met"), [("NotFinite", True, 1), ("NotFinite", False, 0), ("PeerLost", True, 0)]
)
def test_a_task_of_a_collective_stays_until_all_know_of_the_loss(
    monkeypatch: pytest.MonkeyPatch, error: str, collective: bool, met: int
) -> None:
    """A task that left at once took its part of the all-reduce with it: the other ended with 75, once in 12 runs."""
    from types import SimpleNamespace

    from dtj_trainer import errors
    from dtj_trainer.distribution import agreement

    barriers: list[str] = []
    monkeypatch.setattr(agreement.compat, "wait_at_barrier", lambda name, seconds: barriers.append(name))
    config: Any = SimpleNamespace(cluster=SimpleNamespace(leads=True, peers=lambda *roles: {}))
    kind = getattr(errors, error)
    with pytest.raises(kind), agreement.ending_together(config, collective=collective):
        raise kind("words")
    assert len(barriers) == met
